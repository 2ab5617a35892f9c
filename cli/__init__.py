"""What a person types and sees.

``main.py`` finds the command, ``commands/`` has one file each: options, a call, print.  ``reading.py`` goes through a
capture for them.  ``views/`` turns nouns into rich renderables, ``page/`` a report into one HTML file, ``browse/``
shows a capture in panes.
"""

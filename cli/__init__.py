"""What a person types and sees.

``main.py`` finds the command, ``report.py``, ``rpcs.py``, ``show.py``, ``packets.py`` and ``export.py`` are one
command each: options, a call, print.  ``reading.py`` goes through a capture for them, ``ahead.py`` lets a second
process decode a large one.  ``views/`` turns nouns into rich renderables, ``records.py`` into JSON objects.
"""

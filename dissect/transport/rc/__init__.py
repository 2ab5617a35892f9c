"""Reliable Connection: from packets in columns to Operations (InfiniBand Architecture, volume 1, chapter 9).

``observer.py`` sorts packets into connections, paired by their CM exchange (``cm.py``) or from the traffic
(``pairing.py``); ``send_queue.py`` follows one direction of one connection through loss, repetition and wrap.
"""

"""RDMA verbs behind one small interface.

``interface.py`` says what a probe needs of a device; ``rdmacm.py`` and ``queuepair.py`` do it with pyverbs and
librdmacm, ``memory.py`` without any device; ``devices.py`` knows those of this machine, and what to do where there is
none.
"""

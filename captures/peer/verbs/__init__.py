"""RDMA verbs behind one small interface.

``interface.py`` says what a probe needs of a device, and does it without one; it knows the devices of this machine, and
what to do where there is none.  ``rdmacm.py`` does it with pyverbs and librdmacm.
"""

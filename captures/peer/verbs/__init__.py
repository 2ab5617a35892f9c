"""RDMA verbs behind one small interface.

``interface.py`` defines what a probe needs of a device, without needing one; it knows the devices of this machine, and
what to do if there is none. ``rdmacm.py`` implements it with pyverbs and librdmacm.
"""

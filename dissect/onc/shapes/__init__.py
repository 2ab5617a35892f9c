"""Every argument and result of NFS and the programs beside it, declared once as data, one file
an RFC.  From the declarations come a tree of values (``decode``) and the steps over them (``skips``).
"""

"""An NFS server with its files in memory: versions 3 and 4.1, to test clients with."""

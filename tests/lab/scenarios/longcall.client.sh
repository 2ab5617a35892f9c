# Arguments and results that fit no inline message, and that no binding lets travel in a chunk of their own.
cat >/tmp/attributes.py <<'PYTHON'
import hashlib
import os

def fact(*words):
    with open("/share/client.facts", "a") as facts:
        print(*words[:-1], end=f"\t{words[-1]}\n", file=facts)

path = "/mnt/x"
open(path, "w").close()
for size in (100, 3000, 5000, 16000, 60000):
    value = os.urandom(size)
    os.setxattr(path, f"user.t{size}", value)
    fact("set", size, value.hex())
    fact("same", size, os.getxattr(path, f"user.t{size}") == value)
print(os.listxattr(path))
PYTHON
cat >/tmp/links.py <<'PYTHON'
import os
import sys

for size in (500, 2000, 4000):
    os.symlink("/" + "y" * (size - 1), f"/mnt/l{sys.argv[1]}-{size}")
    print(len(os.readlink(f"/mnt/l{sys.argv[1]}-{size}")))
PYTHON
mount_nfs 4.2
python3 /tmp/attributes.py
python3 /tmp/links.py 4.2
unmount_nfs 4.2
mount_nfs 3
python3 /tmp/links.py 3
unmount_nfs 3

#!/bin/bash
# The first process of a guest: sets the machine up, plays its role, and switches off.
# Everything printed goes to /share/ROLE.log, where the host can read it while the guest runs.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 PYTHONPATH=/share/project
# Under emulation NumPy sorts of more than 256 elements die in AVX2.
export NPY_DISABLE_CPU_FEATURES=X86_V3
for word in $(cat /proc/cmdline); do
  case $word in role=* | transport=*) export "${word?}" ;; esac
done
exec >"/share/$role.log" 2>&1 </dev/null

mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
[ -e /dev/fd ] || ln -s /proc/self/fd /dev/fd
hostname "$role"
ip link set lo up
cat >/usr/local/bin/rdmascope <<'PROGRAM'
#!/usr/bin/python3
from rdmascope.cli.main import main
main()
PROGRAM
chmod +x /usr/local/bin/rdmascope

PS4='+ ${SECONDS}s '
(set -euo pipefail; . /share/lib.sh; set -x; . "/share/$role.sh")
echo "$?" >"/share/$role.status"
dmesg >"/share/$role.dmesg"
sync
echo o >/proc/sysrq-trigger
sleep 60

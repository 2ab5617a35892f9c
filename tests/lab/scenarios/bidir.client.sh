# Delegations, which the server recalls over the back channel when somebody else changes the files.
sleep 4 # the grace periods
for version in 4.1 4.2; do
  mount_nfs $version
  python3 - $version <<'PYTHON' &
import sys
import time

hello = open(f"/mnt/hello-{sys.argv[1]}")
hello.read()
time.sleep(0.2)
other = open(f"/mnt/r1m-{sys.argv[1]}", "rb")
other.read(10)
open("/share/holding", "w").close()
time.sleep(6)
PYTHON
  holder=$!
  wait_for /share/holding 60
  rm /share/holding
  on_server "echo again >>/export/hello-$version; echo again >>/export/r1m-$version"
  fact recalled $version 2
  wait $holder
  cmp /mnt/hello-$version <(on_server "cat /export/hello-$version")
  unmount_nfs $version
done

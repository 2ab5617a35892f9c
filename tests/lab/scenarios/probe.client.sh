# The active probe against knfsd: what it agrees to, and the conformance suite, with all faults and then without.
mount_nfs 4.2 # once this reads, no grace period is in the way
fact read before "$(md5 </mnt/r1m)"
umount /mnt
rdmascope probe $server -c 3 -i 100ms --json >/share/ping.jsonl
for turn in 1 2; do
  status=0
  [ $turn = 1 ] && faults=--faults || faults=
  rdmascope probe $server --suite conformance $faults --file /r1m --timeout 5s --json >/share/suite.$turn.jsonl || status=$?
  fact suite $turn status $status
done
status=0
rdmascope probe $server --port 20999 || status=$?
fact refused $status
rdmascope probe $server6 -c 1 --json --write /share/probe.pcapng >/share/ping6.jsonl
mount_nfs 4.2 # the server is as it was
fact read after "$(md5 </mnt/r1m)"
umount /mnt

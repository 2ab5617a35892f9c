# What holds calls back: one slot for a session, then a delegation that comes back late.
# readers NUMBER: so many programs read at once, past the cache.
readers() {
  local number workers=()
  for number in $(seq "$1"); do
    dd if=/mnt/r1m of=/dev/null bs=16k count=40 iflag=direct status=none &
    workers+=($!)
  done
  for number in "${workers[@]}"; do
    wait "$number"
  done
}

echo 1 >/sys/module/nfs/parameters/max_session_slots
mark slots
mount_nfs 4.1
readers 6
unmount_nfs 4.1
echo 64 >/sys/module/nfs/parameters/max_session_slots

mark recall
mount_nfs 4.1
exec 3</mnt/hello.txt
sleep 1
delay 1500
on_server 'echo changed >/export/hello.txt'
sleep 5
exec 3<&-
delay 0
unmount_nfs 4.1-again

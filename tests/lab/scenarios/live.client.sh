# rdmascope live in the client, while it mounts, reads and writes, and once more while it writes all it can.

# watch NAME OPTIONS...: until end_watch; it is there when the kernel has a packet socket for it.
watch() {
  local name=$1
  shift
  rdmascope live "$device" --json "$@" >/share/$name.jsonl 2>/share/$name.err &
  watcher=$!
  until [ "$(wc -l </proc/net/packet)" -gt 1 ]; do
    kill -0 $watcher
    sleep 0.2
  done
}

end_watch() {
  local status=0
  sleep 3 # a slow guest is behind what it watches
  kill -INT $watcher
  wait $watcher || status=$?
  fact live $1 $status
}

watch calm --write /share/calm.pcapng
mount_nfs 4.1
dd if=/dev/urandom of=/tmp/w bs=10000 count=60 status=none
cp /tmp/w /mnt/w
md5 </mnt/r1m
ls -l /mnt/dir | wc -l
rm /mnt/w
umount /mnt
mount_nfs 3
md5 </mnt/r1m
umount /mnt
end_watch calm
mark calm

mount_nfs 4.2
watch flood --buffer 2
workers=()
for number in 1 2 3; do
  dd if=/dev/zero of=/mnt/f$number bs=1M count=6 conv=fsync status=none &
  workers+=($!)
done
for worker in "${workers[@]}"; do
  wait $worker
done
end_watch flood
umount /mnt

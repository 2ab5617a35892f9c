# rdmascope live in the client, while it mounts, reads and writes, and once more while it writes all it can.

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

# Thousands of RPCs: every name is looked up, and found missing, anew.
mount_nfs 3 lookupcache=none,noac
watch thousands
python3 - <<'END'
import os
for number in range(1000):
    try:
        os.stat(f"/mnt/none{number}")
    except FileNotFoundError:
        pass
END
umount /mnt
end_watch thousands
fact stats 1000
mark thousands

# The same through Wireshark's extcap, as NFS over TCP.
mark extcap
mkfifo /tmp/fifo
cat /tmp/fifo >/share/extcap.pcapng &
reader=$!
rdmascope extcap --capture --extcap-interface "nfs-rdma-$device" --fifo /tmp/fifo 2>/share/extcap.err &
watcher=$!
watching
mount_nfs 4.2
fact read extcap "$(md5 </mnt/r1m)"
dd if=/tmp/w of=/mnt/w bs=10000 status=none
ls -l /mnt/dir | wc -l
umount /mnt
end_watch extcap
wait $reader
mark extcap-end

mount_nfs 4.2
watch flood --buffer 2MB
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

# Both ends lose some of what they send, while files are written and read.
mount_nfs 4.1
lose 0.5
dd if=/dev/urandom of=/tmp/big bs=256k count=16 status=none
fact md5 /big "$(md5 </tmp/big)"
cp /tmp/big /mnt/big
sync -f /mnt
md5sum /mnt/r1m
ls /mnt/dir | wc -l
lose 0
on_server lose 0
unmount_nfs 4.1
sleep 1
count_device
on_server count_device

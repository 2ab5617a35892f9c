# The smallest: one mount, one file read, one written.
mount_nfs 4.2
fact read "$(md5 </mnt/r1m)"
dd if=/dev/urandom of=/tmp/new bs=1021 count=300 status=none
cat /tmp/new >/mnt/w
fact md5 /w "$(md5 </tmp/new)"
unmount_nfs 4.2

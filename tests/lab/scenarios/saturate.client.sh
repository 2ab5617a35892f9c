# As much traffic as goes, while rdmascope live watches with a small buffer, for which the guest has no CPU to spare.
watch saturated --buffer 2MB
mount_nfs 4.2
workers=()
for number in 1 2 3; do
  dd if=/dev/urandom of=/tmp/new$number bs=64k count=160 status=none
  fact md5 /new$number "$(md5 </tmp/new$number)"
done
for number in 1 2 3; do
  (cat /tmp/new$number >/mnt/new$number && md5sum /mnt/r1m) &
  workers+=($!)
done
for worker in "${workers[@]}"; do
  wait $worker
done
unmount_nfs 4.2
end_watch saturated

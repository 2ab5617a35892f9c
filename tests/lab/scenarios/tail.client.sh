# The server loses some of what it sends, before the capture point: replies that nothing follows.  rxe's timer runs from a
# packet that was sent up to one timeout earlier; so each call comes when none runs.
mount_nfs 3 noac
for number in $(seq 20); do
  stat /mnt/r1m >/tmp/stat # TCP's timer has the round trips in it that the mount took
done
on_server lose 8
for number in $(seq 25); do
  sleep 2.4
  stat /mnt/r1m >/tmp/stat
done
for number in $(seq 8); do
  sleep 2.4
  dd if=/mnt/r1m of=/dev/null bs=64k count=1 skip="$number" iflag=direct status=none
done
on_server lose 0
unmount_nfs 3

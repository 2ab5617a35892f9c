# Both ends of a wire with a known delay: first the server's host is quick, for NFSv3, then it sends late, for NFSv4.1.
# load READS: of 64 KiB each, three times.
load() {
  local number
  for number in 1 2 3; do
    dd if=/mnt/r1m of=/dev/null bs=64k count="$1" iflag=direct status=none
    dd if=/dev/zero of=/mnt/zeros bs=64k count=4 oflag=direct status=none
  done
}

mount_nfs 3
load 6
unmount_nfs 3
on_server delay 80
mount_nfs 4.1
load 15
unmount_nfs 4.1
on_server delay 0

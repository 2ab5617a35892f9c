# One load on four mounts: without trouble, with a small path MTU, on a server's slow disk, and over several connections
# of which one is slow.

# reads SIZE COUNT FILE and writes SIZE COUNT FILE: past the cache.
reads() { dd if="$3" of=/dev/null bs="$1" count="$2" iflag=direct status=none; }
writes() { dd if=/dev/zero of="$3" bs="$1" count="$2" oflag=direct,dsync status=none; }

load() {
  local number
  for number in 1 2 3; do
    reads 64k 15 /mnt/r1m
  done
  writes 16k 30 /mnt/zeros
}

# path_mtu BYTES: of Ethernet, on both sides.
path_mtu() {
  on_server "ip link set eth0 mtu $1"
  ip link set eth0 mtu "$1"
}

mark healthy
mount_nfs 3
load
unmount_nfs healthy

if [ "$transport" = rxe ]; then # TCP's segments have no path MTU of RDMA's
  path_mtu 700
  mark mtu
  mount_nfs 3
  load
  unmount_nfs mtu
  path_mtu 4200
fi

mark disk
[ "$transport" = rxe ] || delay 50
timeout 200 mount -t nfs -o "rdma,port=20049,vers=3,nolock" "$server:/slow" /mnt
[ "$transport" = rxe ] || delay 0
writes 16k 120 /mnt/zeros
unmount_nfs disk

mark connection
mount_nfs 3 nconnect=4
reads 4k 8 /mnt/r1m # every connection is open after that
fact slowed "$(on_server slow_connection 80)"
for number in $(seq 30); do
  reads 64k 15 /mnt/r1m
done
on_server 'tc qdisc del dev eth0 root'
unmount_nfs connection

# One thing after the other is made scarce, each on a mount of its own: traces of both kernels, a pair for each part.
. /share/scenario.server.sh
prepare_trace
seconds=200 on_server prepare_trace

# part NAME COMMAND...: recorded on both sides.
part() {
  local name=$1
  shift
  begin_trace
  on_server begin_trace
  "$@"
  end_trace "$name"
  seconds=200 on_server "end_trace $name"
  umount /mnt
}

# readers COUNT SIZE [OPTIONS]: read at once, past the client's cache.
readers() {
  local number workers=()
  for number in $(seq 1 "$1"); do
    dd if=/mnt/r1m of=/dev/null bs="$2" iflag=direct status=none "${@:3}" &
    workers+=($!)
  done
  wait "${workers[@]}"
}

# ahead MEBIBYTES: so much of a file is read in calls of 64 KiB, all of them at once; processes may come one by one.
ahead() {
  echo $(($1 * 1024)) >"/sys/class/bdi/$(mountpoint -d /mnt)/read_ahead_kb"
  python3 - "$1" <<'END'
import os
import sys

file, size = os.open("/mnt/r8m", os.O_RDONLY), int(sys.argv[1]) << 20
os.posix_fadvise(file, 0, size, os.POSIX_FADV_WILLNEED)
while size > 0:
    size -= len(os.read(file, 1 << 20))
END
}

small_files() {
  local number
  for number in $(seq 1 20); do echo "$number" >"/mnt/s$number"; done
  rm -f /mnt/s*
}

from_disk() {
  local number
  for number in 1 2 3 4; do dd if=/mnt/r$number of=/dev/null bs=64k count=8 iflag=direct status=none; done
  for number in 1 2 3 4 5; do dd if=/dev/zero of="/mnt/w$number" bs=4k count=1 conv=fsync status=none; done
}

mount_nfs 3
readers 8 64k
part healthy small_files

on_server 'for number in 1 2 3 4 5 6 7 8; do cat /export/r1m; done >/export/r8m'
echo 4 >/proc/sys/sunrpc/rdma_slot_table_entries
mount_nfs 3 rsize=65536
readers 8 64k
part slots ahead 4
echo 128 >/proc/sys/sunrpc/rdma_slot_table_entries

on_server 'echo 4 >/proc/sys/sunrpc/svc_rdma/max_requests'
mount_nfs 3 rsize=65536
readers 8 64k
part credits ahead 4
on_server 'echo 64 >/proc/sys/sunrpc/svc_rdma/max_requests'

on_server 'echo 1 >/proc/fs/nfsd/threads'
mount_nfs 3 rsize=65536
readers 12 64k
part threads readers 12 64k
on_server 'echo 8 >/proc/fs/nfsd/threads'

timeout 100 mount -t nfs -o rdma,port=20049,vers=3,nolock $server:/export/disk /mnt
on_server 'sync; echo 3 >/proc/sys/vm/drop_caches'
part disk from_disk

# A connection begins with few registrations, and its client makes more as it runs out of them; now it hardly can.
on_server 'echo 64 >/proc/fs/nfsd/threads'
mount_nfs 3 rsize=65536
modprobe scarce
part registrations ahead 7
modprobe -r scarce

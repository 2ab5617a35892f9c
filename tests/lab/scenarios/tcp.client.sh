# The same by two mounts, over RDMA and over TCP.
work() {
  fact read "$1" "$(md5 </mnt/r1m)"
  dd if=/dev/urandom of=/tmp/new bs=1021 count=300 status=none
  cat /tmp/new >"/mnt/w.$1"
  fact md5 "/w.$1" "$(md5 </tmp/new)"
  mkdir "/mnt/d.$1"
  for number in {1..20}; do
    echo "$number" >"/mnt/d.$1/f$number"
  done
  ls -l "/mnt/d.$1" | wc -l
  rm -r "/mnt/d.$1"
}
mount_nfs 3
work rdma
unmount_nfs rdma
timeout 200 mount -t nfs -o "tcp,port=2049,vers=3,nolock" "$server:/export" /mnt
work tcp
unmount_nfs tcp

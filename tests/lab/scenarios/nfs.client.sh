# Reads and writes in every version of NFS, one mount after the other.
for version in 3 4.0 4.1 4.2; do
  mount_nfs $version
  ls /mnt/dir | wc -l
  cmp /mnt/hello.txt <(echo hello)
  fact read $version "$(md5 </mnt/r1m)"
  dd if=/dev/urandom of=/tmp/new bs=1021 count=700 status=none # neither size nor end is a multiple of anything
  cp /tmp/new /mnt/w$version
  fact md5 /w$version "$(md5 </tmp/new)"
  mkdir /mnt/d$version
  printf abc >/mnt/d$version/odd
  fact md5 /d$version/odd "$(printf abc | md5)"
  unmount_nfs $version
done

# Small files: made, looked at, read, renamed, removed.
for version in 3 4.2; do
  mount_nfs $version noac # every stat asks the server
  mkdir /mnt/m
  { set +x; } 2>/dev/null
  for number in {1..150}; do
    echo "$number" >/mnt/m/f$number
  done
  for number in {1..150}; do
    read -r line </mnt/m/f$number
    [ "$line" = "$number" ]
  done
  set -x
  ls -l /mnt/m | wc -l
  mv /mnt/m/f1 /mnt/m/g1
  rm -r /mnt/m
  unmount_nfs $version
done

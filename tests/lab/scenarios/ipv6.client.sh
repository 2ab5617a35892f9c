# The same service over IPv6.
for version in 3 4.2; do
  mount_nfs $version proto=rdma6 "[$server6]"
  fact read $version "$(md5 </mnt/r1m)"
  cp /mnt/r1m /tmp/copy
  cat </tmp/copy >/mnt/copy$version # from /mnt to /mnt cp and cat would let the server copy
  fact md5 /copy$version "$(md5 </tmp/copy)"
  unmount_nfs $version
done

# All versions mounted at once, over IPv4 and IPv6, each writing and reading; and a port where nobody listens.
folders=()
for version in 3 4.0 4.1 4.2; do
  mkdir -p /mnt/$version
  mount_nfs $version nconnect=2 $server /mnt/$version # which this kernel grants where it can
  folders+=("$version")
done
mkdir -p /mnt/v6
mount_nfs 3 proto=rdma6,nosharecache "[$server6]" /mnt/v6
folders+=(v6)

workers=()
for folder in "${folders[@]}"; do
  dd if=/dev/urandom of=/tmp/$folder bs=10000 count=60 status=none
  fact md5 /p$folder "$(md5 </tmp/$folder)"
  (cat /tmp/$folder >/mnt/$folder/p$folder && fact read $folder "$(md5 </mnt/$folder/r1m)") &
  workers+=($!)
done
for worker in "${workers[@]}"; do
  wait $worker
done
for folder in "${folders[@]}"; do
  umount /mnt/$folder
done

status=0
timeout 8 mount -t nfs -o rdma,port=20050,vers=4.1,retry=0 $server:/ /mnt || status=$?
fact refused $status

#!/bin/sh
# /init of the initramfs: mounts what the guest runs from, and hands over to /share/init.sh.
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
while read -r module; do
  insmod "/modules/$module" 2>/dev/null || echo "insmod $module failed" # some CPUs lack what a variant needs
done </modules/order

disk=none
for try in 1 2 3 4 5 6 7 8 9 10; do
  [ -b /dev/vdb ] && { disk=found; break; }
  sleep 0.2
done
[ $disk = found ] || echo 'the disks did not appear'
mount -t ext4 /dev/vda /newroot
mount -t ext4 -o ro /dev/vdb /newroot/usr/local/lib/python3.11/dist-packages
mkdir -p /newroot/share
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 share /newroot/share
for folder in dev proc sys; do mount -o move /$folder /newroot/$folder; done
exec switch_root /newroot /share/init.sh

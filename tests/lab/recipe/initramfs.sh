# What the kernel starts first: just enough to find the disks and the folder that is shared with the host.
release=$(cat "$kernel/release")

mkdir -p tree/{bin,dev,proc,sys,newroot,modules}
cp "$(command -v busybox)" tree/bin/
for tool in sh mount insmod switch_root mkdir sleep echo; do ln -s busybox "tree/bin/$tool"; done
cp "$recipe/first-process.sh" tree/init
chmod +x tree/init

# busybox cannot resolve what depends on what, so the order is settled here.
for module in virtio_pci virtio_blk virtio_net virtio_rng ext4 crc32c_generic 9p 9pnet_virtio; do
  modprobe -d "$kernel" -S "$release" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r path; do
  cp "$path" tree/modules/
  basename "$path"
done >tree/modules/order

(cd tree && find . | cpio --create --format=newc --quiet | gzip -1) >initrd.gz
rm -rf tree

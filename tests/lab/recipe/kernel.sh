# Debian's kernel, with the modules that a guest may need, and siw, which Debian leaves out.
release=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: linux-image-//p') # such as 6.1.0-40-amd64
version=$(cut -d. -f1,2 <<<"$release")

apt-get install -y --no-install-recommends \
  "linux-headers-$release" "linux-source-$version" gcc make flex bison libelf-dev

# Unpacked, not installed: the host must not try to boot it.
apt-get download "linux-image-$release"
dpkg -x "linux-image-$release"_*.deb image
cp "image/boot/vmlinuz-$release" vmlinuz
mkdir -p lib/modules
cp -r "image/lib/modules/$release" lib/modules/
modules=$PWD/lib/modules/$release

# Three quarters of them are drivers of hardware that the guests do not have.
kept='./infiniband ./block ./virtio ./net ./char ./firmware'
(cd "$modules/kernel" && rm -rf sound && cd drivers && for folder in ./*; do
  [[ " $kept " = *" $folder "* ]] || rm -rf "$folder"
done)
(cd "$modules/kernel/drivers/net" && rm -rf wireless usb wan can arcnet fddi hamradio ppp phy dsa)
(cd "$modules/kernel/drivers/net/ethernet" && for folder in ./*; do
  [ "$folder" = ./mellanox ] || rm -rf "$folder"
done)

# siw is built out of tree, from the source package that this kernel was built from.
tar xf "/usr/src/linux-source-$version.tar.xz" --wildcards "linux-source-$version/drivers/infiniband/sw/siw*"
make -s -C "/usr/src/linux-headers-$release" M="$PWD/linux-source-$version/drivers/infiniband/sw/siw" \
  CONFIG_RDMA_SIW=m modules
strip --strip-debug -o "$modules/kernel/drivers/infiniband/sw/siw.ko" \
  "linux-source-$version/drivers/infiniband/sw/siw/siw.ko"

depmod -b "$PWD" "$release"
echo "$release" >release
rm -rf image linux-image-*.deb "linux-source-$version"

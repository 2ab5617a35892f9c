# Debian's kernel of a version, with the modules that a guest may need, and siw, which Debian leaves out.
release=$({ apt-cache depends "linux-headers-$version-amd64" linux-image-amd64 2>/dev/null || true; } |
  sed -n "s/.*Depends: linux-[a-z]*-\\($version\\..*-amd64\\)\$/\\1/p" | head -1) # such as 6.1.0-40-amd64
[ -n "$release" ] || { echo "apt has no kernel $version" >&2; exit 1; }

apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "linux-source-$version" gcc make flex bison libelf-dev pahole

# Unpacked, not installed: the host must not try to boot it.
apt-get download "linux-image-$release"
dpkg -x "linux-image-$release"_*.deb image
cp "image/boot/vmlinuz-$release" vmlinuz
mkdir -p lib/modules
cp -r "image/lib/modules/$release" lib/modules/
find lib/modules -name '*.ko.xz' -exec unxz {} + # which busybox cannot insert
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

# siw is built out of tree, from the source package that this kernel was built from.  The headers are unpacked, too: to
# install those of a newer kernel is to install that kernel.
headers=$(apt-cache depends --recurse --no-recommends --no-suggests "linux-headers-$release" |
  grep -E '^linux-(headers|kbuild|compiler)-[^ ]*$' | sort -u)
apt-get download $headers
for package in linux-headers-*.deb linux-kbuild-*.deb linux-compiler-*.deb; do
  [ ! -e "$package" ] || dpkg -x "$package" headers
done
sed -i "s|/usr/|$PWD/headers/usr/|" "headers/usr/src/linux-headers-$release/Makefile"
tar xf "/usr/src/linux-source-$version.tar.xz" --wildcards "linux-source-$version/drivers/infiniband/sw/siw*"
make -s -C "headers/usr/src/linux-headers-$release" M="$PWD/linux-source-$version/drivers/infiniband/sw/siw" \
  CONFIG_RDMA_SIW=m modules
strip --strip-debug -o "$modules/kernel/drivers/infiniband/sw/siw.ko" \
  "linux-source-$version/drivers/infiniband/sw/siw/siw.ko"

mkdir scarce "$modules/kernel/extra"
cp "$recipe/scarce.c" scarce/
echo 'obj-m := scarce.o' >scarce/Makefile
make -s -C "headers/usr/src/linux-headers-$release" M="$PWD/scarce" modules
strip --strip-debug -o "$modules/kernel/extra/scarce.ko" scarce/scarce.ko

depmod -b "$PWD" "$release"
echo "$release" >release
rm -rf image headers scarce linux-*.deb "linux-source-$version"

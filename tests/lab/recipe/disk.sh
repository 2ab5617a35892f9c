# The guests' disk: root file system and modules.  Each guest writes to a copy that is thrown away.
cp -al "$rootfs/root" tree
mkdir -p tree/lib/modules tree/usr/local/lib/python3.11/dist-packages
cp -r "$kernel/lib/modules/$(cat "$kernel/release")" tree/lib/modules/
truncate -s "$(($(du -sm tree | cut -f1) * 5 / 4 + 64))M" root.ext4
mkfs.ext4 -q -O ^has_journal -d tree root.ext4
rm -rf tree

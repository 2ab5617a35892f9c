# A file system that takes large extended attributes, which tmpfs does not.
truncate -s 200M /tmp/ext4
mkfs.ext4 -q -b 4096 -O ea_inode,^has_journal /tmp/ext4
mkdir /tmp/mounted
modprobe loop
mount -o loop /tmp/ext4 /tmp/mounted
cp -r /export/. /tmp/mounted/
umount /export
mount --move /tmp/mounted /export
chmod 777 /export

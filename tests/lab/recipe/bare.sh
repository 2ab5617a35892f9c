# Debian 12 with nothing more than apt, for the walk.
. "$recipe/mirror.sh"
debootstrap --variant=minbase bookworm root "$mirror"
rm -rf root/var/cache/apt/archives/*.deb

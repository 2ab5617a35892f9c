# A minimal Debian 12: NFS client and server, RDMA's user space, pyverbs, Kerberos, tools to shape and watch the wire.
. "$recipe/mirror.sh"

packages=(
  nfs-kernel-server nfs-common
  rdma-core ibverbs-providers rdmacm-utils python3 python3-pyverbs
  krb5-kdc krb5-admin-server krb5-user
  iproute2 ethtool kmod procps iputils-ping tcpdump trace-cmd
)
included=$(IFS=,; echo "${packages[*]}")

# Nobody minds if this file system is lost in a power cut, and syncing takes as long as everything else.
mkdir -p root/etc/dpkg/dpkg.cfg.d
echo force-unsafe-io >root/etc/dpkg/dpkg.cfg.d/fast
printf 'path-exclude=/usr/share/%s/*\n' doc man locale info lintian >root/etc/dpkg/dpkg.cfg.d/small
debootstrap --variant=minbase --include="$included" bookworm root "$mirror"

rm -rf root/var/cache/apt root/var/lib/apt/lists root/usr/share/{doc,man,locale,info}

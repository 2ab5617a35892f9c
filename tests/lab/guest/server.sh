# The server guest: knfsd over RDMA on port 20049, and whatever the client asks for meanwhile.
network 1
mkdir -p /export
mount -t tmpfs -o size=256m tmpfs /export
chmod 777 /export
echo hello >/export/hello.txt
dd if=/dev/urandom of=/export/r1m bs=1000 count=1024 status=none
mkdir /export/dir
seq -f /export/dir/a-rather-long-name-to-make-the-listing-of-this-directory-long-%g 200 | xargs touch
echo '/export *(rw,no_root_squash,insecure,fsid=0,async,no_subtree_check,sec=sys:krb5:krb5i)' >/etc/exports
fact md5 /r1m "$(md5 </export/r1m)"

scenario server

rpcbind
modprobe lockd nlm_timeout=3 nlm_grace_period=3 # 50 s without, and no delegations before they are over
modprobe -a nfsd rpcrdma
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4gracetime
echo 10 >/proc/fs/nfsd/nfsv4leasetime
exportfs -ra
rpc.mountd
rpc.nfsd -V 4 -V 4.1 -V 4.2 8
echo 'rdma 20049' >/proc/fs/nfsd/portlist
echo Y >/proc/fs/nfsd/v4_end_grace # there is nobody who could reclaim anything

set +x
touch /share/server.ready
serve_requests

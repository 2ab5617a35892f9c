# The client guest: waits for the server and plays the scenario.
network 2
modprobe -a nfs nfsv3 nfsv4 rpcrdma
mkdir -p /mnt
{ set +x; } 2>/dev/null
wait_for /share/server.ready 120
set -x
trap 'touch /share/client.done' EXIT
scenario client

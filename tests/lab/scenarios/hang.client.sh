# A healthy mount; one that is refused; then a server whose kernel dies while a file is created.
mark healthy
mount_nfs 3
mkdir /mnt/made
for number in $(seq 30); do
  echo "$number" >"/mnt/made/w$number"
done
md5sum /mnt/r1m
unmount_nfs healthy

on_server 'rpc.nfsd 0'
mark refused
status=0
timeout 20 mount -t nfs -o "rdma,port=20049,vers=4.1,nolock,retry=0" "$server:/" /mnt || status=$?
fact refused $status
on_server 'rpc.nfsd -V 4 -V 4.1 -V 4.2 8; echo "rdma 20049" >/proc/fs/nfsd/portlist; echo Y >/proc/fs/nfsd/v4_end_grace'

mark killed
mount_nfs 3
ls /mnt/made | wc -l
on_server 'sync; (sleep 1; echo 0 >/share/server.status; sync; echo c >/proc/sysrq-trigger) &'
sleep 3
touch /mnt/made/last &
sleep 25
kill -9 $!

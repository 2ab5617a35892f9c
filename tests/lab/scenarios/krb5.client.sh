# Calls with RPCSEC_GSS: authenticated (krb5), and with their arguments and results in checksummed wraps (krb5i).
printf '10.77.0.1 server.lab.test\n10.77.0.2 client.lab.test\n' >>/etc/hosts
hostname client.lab.test
cp /share/krb5.conf /etc/
cp /share/client.keytab /etc/krb5.keytab
chmod 600 /etc/krb5.keytab
modprobe rpcsec_gss_krb5
mkdir -p /run/rpc_pipefs
mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
rpc.gssd -vvv -f &>/share/gssd.log &
sleep 1
for security in krb5 krb5i; do
  for version in 3 4.2; do
    mount_nfs $version sec=$security server.lab.test
    fact read $security $version "$(md5 </mnt/r1m)"
    dd if=/dev/urandom of=/tmp/new bs=1021 count=200 status=none
    cat /tmp/new >/mnt/w-$security-$version
    fact md5 /w-$security-$version "$(md5 </tmp/new)"
    unmount_nfs $security-$version
  done
done

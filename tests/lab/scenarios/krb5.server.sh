# A Kerberos realm of two machines, with its KDC beside the NFS server.
printf '10.77.0.1 server.lab.test\n10.77.0.2 client.lab.test\n' >>/etc/hosts
hostname server.lab.test
cat >/etc/krb5.conf <<'CONF'
[libdefaults]
  default_realm = LAB.TEST
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
[realms]
  LAB.TEST = {
    kdc = 10.77.0.1
  }
[domain_realm]
  .lab.test = LAB.TEST
CONF
mkdir -p /etc/krb5kdc /var/lib/krb5kdc
printf '[realms]\n  LAB.TEST = {\n    key_stash_file = /etc/krb5kdc/stash\n  }\n' >/etc/krb5kdc/kdc.conf
kdb5_util create -s -P secret -r LAB.TEST
for principal in nfs/server.lab.test nfs/client.lab.test; do
  kadmin.local -q "addprinc -randkey $principal"
done
kadmin.local -q 'ktadd -k /etc/krb5.keytab nfs/server.lab.test'
kadmin.local -q 'ktadd -k /share/client.keytab nfs/client.lab.test'
cp /etc/krb5.conf /share/
krb5kdc
modprobe rpcsec_gss_krb5
mkdir -p /run/rpc_pipefs
mount -t rpc_pipefs rpc_pipefs /run/rpc_pipefs
rpc.svcgssd -vvv -f &>/share/svcgssd.log &

# Both kernels' tracepoints, recorded by the one line that "rdmascope record" prints, beside the wire.
. /share/scenario.server.sh

begin_trace client.trace.dat
seconds=200 on_server 'begin_trace server.trace.dat'
for version in 3 4.1; do
  mount_nfs $version
  cat /mnt/hello.txt >/dev/null
  fact read $version "$(md5 </mnt/r1m)"
  dd if=/dev/zero of="/mnt/w$version" bs=64k count=20 conv=fsync status=none
  ls -l /mnt/dir | wc -l
  for number in $(seq 1 20); do echo "$number" >"/mnt/s$number"; done
  rm -f /mnt/s*
  unmount_nfs $version
done
end_trace client.trace.dat
seconds=200 on_server 'end_trace server.trace.dat'

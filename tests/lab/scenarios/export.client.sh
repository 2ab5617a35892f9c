# Linux mounts the export of "probe --serve", by NFSv4.1 and NFSv3, and works on it as people do.
on_server 'rdmascope probe --serve --port 20050 --capacity 12MiB --json >/share/serve.jsonl 2>/share/serve.err & echo $! >/tmp/serve'
dd if=/dev/urandom of=/tmp/bulk bs=1000 count=3001 status=none
for _ in $(seq 600); do
  ! grep -q probe_server /share/serve.jsonl 2>/dev/null || break
  sleep 0.2
done
mount_export() { # VERSION
  local options="rdma,port=20050,vers=$1,nolock" status=0
  [ "$1" != 3 ] || options="$options,mountport=20048,mountproto=tcp"
  [ "$transport" = rxe ] || delay 50
  timeout 200 mount -t nfs -o "$options" "$server:/" /mnt || status=$?
  [ "$transport" = rxe ] || delay 0
  return $status
}
for version in 4.1 3; do
  mount_export $version
  cp /tmp/bulk "/mnt/w$version"
  fact md5 "/w$version" "$(md5 </tmp/bulk)"
  mkdir /mnt/dir
  seq -f /mnt/dir/a-rather-long-name-to-make-the-listing-of-this-directory-long-%g 60 | xargs touch
  unmount_nfs $version
  mount_export $version # nothing is in the client's cache
  fact read $version "$(md5 <"/mnt/w$version")"
  fact known $version "$(md5 </mnt/pattern)"
  fact listed $version "$(ls /mnt/dir | wc -l)"
  fact odd $version "$(dd if=/mnt/pattern bs=100001 count=3 iflag=direct status=none | md5)"
  echo one >/mnt/small
  echo two >>/mnt/small
  fact appended $version "$(tr '\n' ' ' </mnt/small)"
  truncate -s 3 /mnt/small
  chmod 600 /mnt/small
  ln -s small /mnt/link
  ln /mnt/small /mnt/second
  fact stat $version "$(stat -c '%s %a %h' /mnt/second) $(cat /mnt/link)"
  mv /mnt/second /mnt/dir/moved
  ! rmdir /mnt/dir
  status=0
  dd if=/dev/zero of=/mnt/full bs=1M count=12 oflag=direct 2>/tmp/full || status=$?
  fact full $version "$status $(grep -c 'No space left' /tmp/full)"
  rm -r /mnt/dir /mnt/small /mnt/link /mnt/full
  fact left $version "$(ls /mnt | tr '\n' ' ')"
  unmount_nfs $version.again
done
on_server 'kill -INT $(cat /tmp/serve)'
for _ in $(seq 100); do
  ! grep -q probe_served /share/serve.jsonl || break
  sleep 0.2
done

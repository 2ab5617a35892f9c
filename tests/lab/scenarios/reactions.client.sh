# Linux mounts a server that commits a fault once, by NFSv3 and NFSv4.1, and works on it: one fault after the other.
faults='none other-xid-inline payload-behind-nomsg grant-nothing reply-chunk-ignored read-list-in-reply
  reply-chunk-made-up segment-missing handle-zero returned-too-long unfilled-with-length unused-with-length half-written
  pad-written not-reduced count-too-low item-inline-too written-after-reply written-outside read-after-reply
  error-other-xid error-7 error-and-reply invalidate-unasked invalidate-other'

head -c 5001 /dev/urandom >/tmp/odd
fact kernel "$(uname -r | cut -d. -f1-2)"
fact md5 odd "$(md5 </tmp/odd)"
names=$(seq -f "/mnt/dir/%0250g" 16)

# step NAME COMMAND...: how it ended, and the checksum of what it printed.  What hangs is killed: status 137.
step() {
  local name=$1 status=0 digest
  shift
  timeout -s KILL 150 "$@" >/tmp/printed || status=$?
  digest=$(md5sum </tmp/printed)
  fact step $version $fault $name "$status ${digest%% *}"
  return $status
}

# work: what people do, and what gives each fault its occasion: READs that fill a segment, of an odd length, and of what
# ends before the segment does, which fits inline or not.
work() {
  step block dd if=/mnt/pattern bs=64k count=1 iflag=direct status=none || true
  step part dd if=/mnt/pattern bs=100001 count=1 iflag=direct status=none || true
  step copy cp /tmp/odd /mnt/odd || true
  step odd dd if=/mnt/odd bs=8k iflag=direct status=none || true
  step tail dd if=/mnt/odd bs=8k skip=4608 iflag=direct,skip_bytes status=none || true
  step names mkdir /mnt/dir $names || true
  step list ls -U /mnt/dir || true
}

# server_of NUMBER: the command that begins the server of a turn.  Each has ports of its own, because it begins while the
# one before is at work.
server_of() {
  local version fault options
  read -r version fault <<<"${turns[$1]:-}"
  options="--port $((20100 + $1)) --mount-port $((20300 + $1))"
  [ "$fault" = none ] || options="$options --fault $fault --fault-times 1"
  [ -z "$version" ] || echo "serve $version.$fault $options"
}

react() { # NUMBER
  local mounted=0 options="rdma,port=$((20100 + $1)),vers=$version,timeo=300"
  [ $version != 3 ] || options="$options,nolock,mountport=$((20300 + $1)),mountproto=tcp"
  step mount mount -t nfs -o "$options" "$server:/" /mnt || mounted=$?
  if [ $mounted = 0 ]; then
    work
    timeout -s KILL 150 umount /mnt || umount -f -l /mnt
  fi
}

[ "$transport" = rxe ] || delay 20 # also each connection that follows a fault needs it
turns=()
for version in 3 4.1; do
  for fault in $faults; do
    turns+=("$version $fault")
  done
done
on_server "$(server_of 0)"
{ set +x; } 2>/dev/null # its lines would take longer than what they tell of
for number in "${!turns[@]}"; do
  read -r version fault <<<"${turns[$number]}"
  on_server "listens $version.$fault
    $(server_of $((number + 1)))"
  mark $version.$fault
  react $number
  fact served $version $fault "$(on_server served $version.$fault)"
done

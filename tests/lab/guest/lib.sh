# What the scenarios are written with.  The guests are 10.77.0.1 and fd77::1 (server), 10.77.0.2 and fd77::2 (client).
server=10.77.0.1
server6=fd77::1

# fact WORDS... VALUE: tell the host something that was measured here.
fact() {
  local tab=$'\t'
  printf '%s\n' "${*:1:$#-1}$tab${!#}" >>"/share/$role.facts"
}

md5() { md5sum | cut -d' ' -f1; }

# wait_for FILE SECONDS
wait_for() {
  local end=$((SECONDS + $2))
  until [ -e "$1" ]; do
    if [ $SECONDS -ge $end ]; then
      echo "waited $2 s for $1, in vain" >&2
      return 1
    fi
    sleep 0.1
  done
}

# network HOST: the wire and the RDMA device upon it.
network() {
  ip addr add "10.77.0.$1/24" dev eth0
  ip -6 addr add "fd77::$1/64" dev eth0 nodad # duplicates are known not to be; the wait would cost 2 s
  ip link set eth0 up mtu 4200                # room for a path MTU of 4096
  modprobe -a rdma_cm rdma_ucm                # rdma_ucm is for user space, pyverbs
  case $transport in
    rxe) modprobe rdma_rxe ;;
    siw) modprobe siw ;;
  esac
  device=${transport}0
  rdma link add "$device" type "$transport" netdev eth0
}

# scenario ROLE: its script, where it has one for this side.
scenario() {
  if [ -e "/share/scenario.$1.sh" ]; then
    . "/share/scenario.$1.sh"
  fi
}

# mount_nfs VERSION [OPTIONS [ADDRESS [FOLDER]]]: on /mnt, with a deadline that
# outlasts two connections whose first call siw leaves unanswered, a minute each.  Version 3 names the export's real path.
mount_nfs() {
  local path=/ address=${3:-$server} status=0
  [ "$1" = 3 ] && path=/export
  [ "$transport" = rxe ] || delay 50
  timeout 200 mount -t nfs -o "rdma,port=20049,vers=$1,nolock${2:+,$2}" "$address:$path" "${4:-/mnt}" || status=$?
  [ "$transport" = rxe ] || delay 0
  return $status
}

# delay MILLISECONDS: of all that this side sends; "delay 0" ends it.  siw may never read a call that comes right behind
# its MPA reply, before it is ready; so it gets the time to be.
delay() {
  if [ "$1" = 0 ]; then
    sleep 0.2 # for what still waits to be sent
    tc qdisc del dev eth0 root
  else
    modprobe sch_netem
    tc qdisc add dev eth0 root netem limit 10000 delay "$1ms"
  fi
}

# unmount_nfs NAME: keeps what the client counted before.
unmount_nfs() {
  sync -f /mnt
  sleep 0.5 # for what it does by itself, such as giving back delegations
  mark counted
  cp /proc/self/mountstats "/share/mountstats.$1"
  timeout 90 umount /mnt
  mark unmounted
}

# mark WORD: a datagram that says on the wire, that is in the capture, what happens now.
mark() {
  echo "$1" >/dev/udp/$server/9
}

# count_device: what rxe, or under siw TCP, counted so far on this side.
count_device() {
  local path
  if [ "$transport" = rxe ]; then
    for path in /sys/class/infiniband/"$device"/ports/1/hw_counters/*; do
      fact counter "$role" "$(basename "$path")" "$(cat "$path")"
    done
  else
    nstat -asz TcpRetransSegs TcpOutSegs | while read -r name value _; do
      [[ $name != Tcp* ]] || fact counter "$role" "$name" "$value"
    done
  fi
}

# lose PERCENT: netem drops that share of what this side sends, frame by frame.  "lose 0" ends it, and counts them.
lose() {
  if [ "$1" = 0 ]; then
    fact counter "$role" dropped "$(tc -s qdisc show dev eth0 | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | head -1)"
    tc qdisc del dev eth0 root
  else
    modprobe sch_netem
    ethtool -K eth0 tso off gso off gro off
    tc qdisc add dev eth0 root netem limit 10000 loss "$1%"
  fi
}

# on_server COMMAND: runs in the server guest, with these same functions; prints what it prints, ends as it ends.
on_server() {
  local status traced=$-
  { set +x; } 2>/dev/null
  printf '%s\n' "$*" >/share/request.tmp
  mv /share/request.tmp /share/request
  wait_for /share/answer "${seconds:-60}"
  cat /share/answer.text
  status=$(cat /share/answer)
  rm /share/answer
  [[ $traced != *x* ]] || set -x
  return "$status"
}

serve_requests() {
  local status
  until [ -e /share/client.done ]; do
    if [ -e /share/request ]; then
      mv /share/request /tmp/request
      status=0
      (set -x; . /tmp/request) >/share/answer.text || status=$?
      echo $status >/share/answer.tmp
      mv /share/answer.tmp /share/answer
    fi
    sleep 0.1
  done
}

# watch NAME OPTIONS...: "rdmascope live" on this side's device until "end_watch NAME"; it tells /share/NAME.jsonl.
watch() {
  local name=$1
  shift
  rdmascope live "$device" --json "$@" >"/share/$name.jsonl" 2>"/share/$name.err" &
  watcher=$!
  watching
}

# watching: waits until $watcher captures.
watching() {
  local end=$((SECONDS + 120))
  until [ "$(wc -l </proc/net/packet)" -gt 1 ]; do # a title, and a line for each packet socket
    kill -0 $watcher
    [ $SECONDS -lt $end ]
    sleep 0.2
  done
}

end_watch() {
  local status=0
  sleep 3 # a slow guest is behind what it watches
  kill -INT $watcher
  wait $watcher || status=$?
  fact live "$1" $status
}

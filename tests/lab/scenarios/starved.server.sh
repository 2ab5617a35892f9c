# What begins and ends the trace of a part, on either side; in the server also a disk that takes its time.
tracing=/sys/kernel/tracing

# prepare_trace: the events that "rdmascope record" names, none of which is recorded yet.
prepare_trace() {
  mountpoint -q $tracing || mount -t tracefs tracefs $tracing
  eval "$(rdmascope record -o x 2>/dev/null | sed 's/record -o x/start/')"
  echo 0 >$tracing/tracing_on
}

begin_trace() {
  echo >$tracing/trace
  echo 1 >$tracing/tracing_on
}

# end_trace NAME: puts it where the host sees it.
end_trace() {
  echo 0 >$tracing/tracing_on
  cp $tracing/trace "/tmp/$1.txt"
  cp "/tmp/$1.txt" "/share/$1.$role.txt"
}

if [ "$role" = server ]; then
  modprobe null_blk nr_devices=0
  mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
  mkdir /sys/kernel/config/nullb/nullb0
  # 128 MiB in memory; a timer completes each request after 60 ms.
  for setting in size=128 memory_backed=1 irqmode=2 completion_nsec=60000000 power=1; do
    echo "${setting#*=}" >"/sys/kernel/config/nullb/nullb0/${setting%=*}"
  done
  mkfs.ext4 -q -O ^has_journal /dev/nullb0
  mkdir /export/disk
  mount /dev/nullb0 /export/disk
  chmod 777 /export/disk
  for number in 1 2 3 4; do cp /export/r1m "/export/disk/r$number"; done
  echo '/export/disk *(rw,no_root_squash,insecure,sync,no_subtree_check,sec=sys)' >>/etc/exports
  sync
fi

# A disk that needs 25 ms for everything, for /slow.
slow_disk() {
  local disk=/sys/kernel/config/nullb/nullb0
  modprobe null_blk nr_devices=0
  [ -d /sys/kernel/config/nullb ] || mount -t configfs configfs /sys/kernel/config
  mkdir $disk
  echo 64 >$disk/size # MiB
  echo 1 >$disk/memory_backed
  echo 2 >$disk/irqmode # answers when a timer ends
  echo 25000000 >$disk/completion_nsec
  echo 1 >$disk/power
  mkfs.ext2 -q /dev/nullb0
  mkdir /slow
  mount /dev/nullb0 /slow
  chmod 777 /slow
  echo '/slow *(rw,no_root_squash,insecure,fsid=1,sync,no_subtree_check)' >>/etc/exports
}
slow_disk

# slow_connection MILLISECONDS: what is sent on one of the connections comes so much later; prints the number of the client's
# queue pair, or its TCP port.
slow_connection() {
  local number match
  if [ "$transport" = rxe ]; then
    number=$(rdma resource show qp link "$device" | sed -n 's/.* rqpn \([0-9]*\) .*type RC state RTS.*/\1/p' | sort -n | tail -1)
    match="protocol 17 0xff match u32 $number 0x00ffffff at 32" # of the BTH
  else
    number=$((0x$(sed -n 's/^ *[0-9]*: [0-9A-F]*:4E51 [0-9A-F]*:\([0-9A-F]*\) 01 .*/\1/p' /proc/net/tcp | tail -1)))
    match="protocol 6 0xff match ip dport $number 0xffff"
  fi
  modprobe -a sch_prio sch_netem cls_u32
  tc qdisc add dev eth0 root handle 1: prio bands 4 priomap 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
  tc qdisc add dev eth0 parent 1:4 netem limit 10000 delay "$1ms"
  tc filter add dev eth0 parent 1: protocol ip u32 match ip $match flowid 1:4
  echo "$number"
}

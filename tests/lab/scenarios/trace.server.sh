# begin_trace FILE: records until end_trace FILE, which puts it where the host sees it.
begin_trace() {
  local end=$((SECONDS + 180))
  mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
  rdmascope record --run -o "/tmp/$1" >"/tmp/$1.log" 2>&1 &
  echo $! >"/tmp/$1.pid" # Each request to the server is a shell of its own.
  # trace-cmd enables one event after the other, and this is the last.
  until [ "$(cat /sys/kernel/tracing/events/rdma_cma/cm_event_handler/enable)" = 1 ]; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

end_trace() {
  local tracer end=$((SECONDS + 180))
  tracer=$(cat "/tmp/$1.pid")
  kill -TERM "$tracer"
  while kill -0 "$tracer" 2>/dev/null && [ $SECONDS -lt $end ]; do sleep 0.2; done
  cat "/tmp/$1.log"
  cp "/tmp/$1" "/share/$1"
}

# Two of our own ends talk version 2, bulk data both ways; then three at once, and the suite.
on_server 'rdmascope probe --serve --port 20050 --json >/share/serve.jsonl 2>&1 & echo $! >/tmp/serve'
wait_for_line() { # TEXT FILE
  for _ in $(seq 300); do
    grep -q "$1" "$2" 2>/dev/null && return
    sleep 0.2
  done
  return 1
}
wait_for_line probe_server /share/serve.jsonl
rdmascope probe $server --port 20050 --highest 2 -c 3 -i 100ms --echo 200000 --json >/share/echo.jsonl
workers=()
for number in 1 2 3; do
  rdmascope probe $server --port 20050 --highest 2 -c 5 -i 500ms --json >/share/several.$number.jsonl &
  workers+=($!)
done
for worker in "${workers[@]}"; do
  wait $worker
done
mark suite
rdmascope probe $server --port 20050 --suite conformance --faults --timeout 10s --json >/share/suite.jsonl
on_server 'kill -INT $(cat /tmp/serve)'
wait_for_line probe_served /share/serve.jsonl

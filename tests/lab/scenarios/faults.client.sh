# A server that is right, by all checks, and then wrong on purpose, on a real wire: the probe at the other end, and the
# audit of the wire, find each fault.
checks=()
for check in short-call write-chunk-segments write-chunk-used write-chunk-odd write-chunk-exact; do
  checks+=(--check $check)
done
for fault in none half-written segment-missing returned-too-long pad-written; do
  option="--fault $fault" asked=("${checks[@]}")
  [ $fault != none ] || option='' asked=(--faults)
  on_server "rdmascope probe --serve --port 20050 $option --json >/share/serve.$fault.jsonl 2>/share/serve.$fault.err & echo \$! >/tmp/serve"
  end=$((SECONDS + 90))
  until [ -s "/share/serve.$fault.jsonl" ]; do
    [ $SECONDS -lt $end ]
    sleep 0.2
  done
  mark $fault
  status=0
  rdmascope probe $server --port 20050 "${asked[@]}" --suite conformance --file /pattern --timeout 5s --json >/share/suite.$fault.jsonl || status=$?
  fact suite $fault status $status
  on_server 'kill -INT $(cat /tmp/serve); while kill -0 $(cat /tmp/serve); do sleep 0.2; done'
done

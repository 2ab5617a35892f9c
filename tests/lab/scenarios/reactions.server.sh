# The server that is wrong: one Python that has loaded everything, and forks for each line "NAME OPTIONS..." in a FIFO.
mkfifo /tmp/wanted
python3 - <<'END' &
import os
import signal
import sys

import rdmascope.captures.peer.nfs_server.export
import rdmascope.captures.peer.probe.probe_records
import rdmascope.captures.peer.probe.serve
import rdmascope.captures.peer.faults
import rdmascope.captures.peer.verbs.rdmacm
import rdmascope.cli.commands.probe
import rdmascope.cli.views.probe
from rdmascope.cli.main import main

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    with open("/tmp/wanted") as lines:
        for line in lines:
            name, *options = line.split()
            if os.fork() == 0:
                for number, kind in ((1, "jsonl"), (2, "err")):
                    os.dup2(os.open(f"/tmp/{name}.{kind}", os.O_CREAT | os.O_WRONLY), number)
                with open(f"/tmp/{name}.pid", "w") as file:
                    print(os.getpid(), file=file)
                sys.argv[1:] = ["probe", "--serve", "--json", *options]
                main()
END

# has_line NAME TYPE: waits until the server has printed such a record.
has_line() {
  local end=$((SECONDS + 120))
  until grep -qs "$2" "/tmp/$1.jsonl"; do
    if [ $SECONDS -ge $end ]; then
      cat "/tmp/$1.err"
      return 1
    fi
    sleep 0.1
  done
}

# serve NAME OPTIONS...: begins; "listens NAME" waits for it.
serve() { echo "$@" >/tmp/wanted; }
listens() { has_line "$1" '"probe_server"'; }

# served NAME: ends it; prints what it counted.
served() {
  kill -INT "$(cat "/tmp/$1.pid")"
  has_line "$1" '"probe_served"'
  tail -n 1 "/tmp/$1.jsonl"
}

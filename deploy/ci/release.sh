#!/bin/sh
# One release on one machine, behind the gate: sh release.sh NEW LIVE PID
#   NEW   the directory with the new code, whose agents are declared in agents.py
#   LIVE  a symbolic link to the directory that runs now: ninelives up LIVE/agents.py
#   PID   the process id of that `ninelives up` (systemctl show --property MainPID --value ninelives)
# NINELIVES_STORE names the SQLite store of production. To roll back, call it with the old directory.
# Exits with the code of what failed, and the old code runs on.
set -eu
new=$(cd "$1" && pwd)
live=$2
pid=$3
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
# 1. Would the runs in flight go on with this code? It is asked of a copy: new code touches no production store.
ninelives store backup "$copy/runs.db"
ninelives check "$new/agents.py" --store "sqlite:///$copy/runs.db"
# 2. A rename: a worker that starts at this moment finds the old code or the new one, whole.
#    One that was killed in between left a link: replace it, do not follow it.
ln -sfn "$new" "$live.next"
mv -T "$live.next" "$live"
# 3. Worker by worker; if the new code does not start, the old workers stay.
kill -HUP "$pid"

#!/bin/sh
# The gate before a deployment, for any CI: sh gate.sh agents.py hello '"world"'
# 1. Is the agent crash-safe? It is killed at every step, on scratch stores: point it at doubles of the world.
# 2. Would the runs in flight go on with this code? NINELIVES_STORE names the store that it is to be deployed to.
#    CHECK_OPTIONS=--other-agents where other workers share that store, with agents of their own.
# Exits with the code of what failed, and nothing is deployed.
set -eu
code=$1
agent=$2
shift 2
ninelives chaos --kills "${CHAOS_KILLS:-20}" --seconds "${CHAOS_SECONDS:-60}" "$code:$agent" "$@"
# shellcheck disable=SC2086
ninelives check ${CHECK_OPTIONS:-} "$code"

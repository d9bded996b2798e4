#!/usr/bin/env bash
# `make bench`: build the load generator, see that Mosquitto is there, compare. QUICK=1: under three minutes. ONLY='connect*': those workloads alone.
set -euo pipefail
cd "$(dirname "$0")/.."

make --no-print-directory -C tests/bench/load

if ! command -v mosquitto >/dev/null 2>&1 && [ -x /usr/sbin/mosquitto ]; then
    export PATH="$PATH:/usr/sbin"
fi
if ! command -v mosquitto >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        root=()
    elif sudo -n true 2>/dev/null; then
        root=(sudo -n)
    else
        echo "make bench: Mosquitto is not installed, and this is not root; run 'apt-get install mosquitto' and try again" >&2
        exit 7
    fi
    echo "installing mosquitto from the distribution ..."
    "${root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq mosquitto >/dev/null
    export PATH="$PATH:/usr/sbin"
fi

exec .venv/bin/python tests/bench/bench.py ${QUICK:+--quick} ${ONLY:+--only "$ONLY"}

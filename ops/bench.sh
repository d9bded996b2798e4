#!/usr/bin/env bash
# `make bench`: build the load generator, see that Mosquitto is there, compare; then compaction on Spark beside a plain fold.
# QUICK=1: under three minutes, no Spark. ONLY='connect*': those workloads alone; ONLY=spark: Spark alone; ONLY=start: how long a hub takes to start; ONLY=streams: streams alone; ONLY=dashboard: what open pages of the dashboard cost the hub; ONLY=api: what a call of the REST API takes beside a hub under load.
# BENCH_PEERS=peers.toml: further brokers take turns with Mosquitto and the hub (tests/bench/peers.py says what the file holds).
# SPARK_EVENTS='1000000 4000000': how many.
set -euo pipefail
cd "$(dirname "$0")/.."
export IOTHUB_ADMIN__ENABLED=off # the hub alone is measured

require_java() {
    if ! command -v "${JAVA_HOME:+$JAVA_HOME/bin/}java" >/dev/null 2>&1; then
        echo "make bench: the tables of Spark and of starts are missing, because there is no Java; run 'apt-get install openjdk-17-jre-headless', then 'ONLY=$1 make bench'" >&2
        return 7
    fi
    mkdir -p bench-results
}

spark() {
    require_java spark || return
    local events
    read -ra events <<<"${SPARK_EVENTS:-200000 1000000}"
    .venv/bin/python tests/bench/bench_spark.py --events "${events[@]}" | tee bench-results/spark.md
}

start() {  # its checkpoint is Spark's
    require_java start || return
    .venv/bin/python tests/bench/bench_start.py | tee bench-results/start.md
}

if [ "${ONLY:-}" = spark ] || [ "${ONLY:-}" = start ]; then
    "$ONLY"
    exit
fi

make --no-print-directory -C tests/bench/load

if [ "${ONLY:-}" = api ]; then
    exec .venv/bin/python tests/bench/bench_api.py ${QUICK:+--seconds 15}
fi

if ! command -v mosquitto >/dev/null 2>&1 && [ -x /usr/sbin/mosquitto ]; then
    export PATH="$PATH:/usr/sbin"
fi
if ! command -v mosquitto >/dev/null 2>&1; then
    if [ "$(id -u)" = 0 ]; then
        root=()
    elif sudo -n true 2>/dev/null; then
        root=(sudo -n)
    else
        echo "make bench: Mosquitto is not installed, and only root can install it; run 'apt-get install mosquitto' and try again" >&2
        exit 7
    fi
    echo "installing mosquitto from the distribution ..."
    "${root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq mosquitto >/dev/null
    export PATH="$PATH:/usr/sbin"
fi

if [ "${ONLY:-}" = streams ]; then
    .venv/bin/python tests/bench/bench_streams.py ${QUICK:+--seconds 1 --turns 1}
    exit
fi

if [ "${ONLY:-}" = dashboard ]; then
    exec .venv/bin/python tests/bench/bench_dashboard.py ${QUICK:+--pairs 2 --seconds 4 --idle-pairs 1 --idle-seconds 4}
fi

.venv/bin/python tests/bench/bench.py ${QUICK:+--quick} ${ONLY:+--only "$ONLY"} ${BENCH_PEERS:+--peers "$BENCH_PEERS"} || code=$?
if [ -z "${QUICK:-}${ONLY:-}" ]; then
    spark || code=$?
    start || code=$?
fi
exit "${code:-0}"

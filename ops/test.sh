#!/usr/bin/env bash
# Install what the tests need, then run them: the suite once, and everything of engine and behaviour again on the plain twin.
# A test never passes by not running: what cannot run is named, and with CI=true that is a failure.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
left_out=()

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi; }

need_debian() {  # need_debian COMMAND PACKAGE WHAT-IT-TESTS
    command -v "$1" >/dev/null || PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null && return 0
    echo "installing $2 ..."
    { as_root apt-get install -y -q "$2" || { as_root apt-get update -q && as_root apt-get install -y -q "$2"; }; } >/dev/null 2>&1
    PATH="$PATH:/usr/sbin" command -v "$1" >/dev/null || left_out+=("$3: $1 is missing and $2 could not be installed")
}

need_debian mosquitto_sub mosquitto-clients "scenarios with mosquitto_pub and mosquitto_sub"
need_debian strace strace "the proof that acknowledgements follow the sync"
need_debian node nodejs "scenarios with mqtt.js"
if command -v npm >/dev/null; then
    (cd tests/scenarios && npm ci --silent --no-audit --no-fund >/dev/null 2>&1) || left_out+=("scenarios with mqtt.js: npm could not install it")
else
    left_out+=("scenarios with mqtt.js: npm is missing")
fi

for reason in "${left_out[@]:-}"; do [ -n "$reason" ] && echo "LEFT OUT  $reason"; done
if [ "${#left_out[@]}" -gt 0 ]; then
    if [ "${CI:-}" = true ]; then echo "with CI=true nothing may be left out"; exit 1; fi
    export IOTHUB_TESTS_LEFT_OUT=1
fi

if [ "${1:-}" = --nightly ]; then
    exec $bin/python -m pytest -q tests/nightly
fi

status=0
$bin/ruff format --check -q . || status=1
$bin/ruff check -q . || status=1
$bin/mypy || status=1
PYTHONPATH=. $bin/lint-imports --config setup.cfg || status=1
spread="-n $(nproc) --dist loadfile"  # what measures nothing and opens no port
echo "units, contracts, properties, structure:"
$bin/python -m pytest -q $spread tests/unit tests/contract tests/property tests/architecture tests/conformance || status=1
echo "real processes, sockets and clients:"
$bin/python -m pytest -q tests/integration tests/behaviour tests/scenarios || status=1
echo "the plain twin: engine, properties and behaviour again"
IOTHUB_PURE_PYTHON=1 $bin/python -m pytest -q $spread tests/unit/engine tests/property || status=1
IOTHUB_PURE_PYTHON=1 $bin/python -m pytest -q tests/behaviour || status=1
[ $status = 0 ] && echo "all tests passed" || echo "some tests failed: look above"
exit $status

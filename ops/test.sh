#!/usr/bin/env bash
# Install what the tests need, then run them: the suite once, and the engine again on the plain twin.
# A test never passes by not running: what cannot run is named, and with CI=true that is a failure.
# The last lines tell the whole: one line for each step, and the name of every test that failed.
# No test gets a second try: one that fails once fails the run.
set -uo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
bin=.venv/bin
left_out=()
logs=$(mktemp -d)
beside=()  # the processes that run beside the steps: what fetches the real servers, then the tests on them
stop_beside() {
    local each
    for each in "${beside[@]}"; do kill -INT -- "-$each" 2>/dev/null; done
    for each in "${beside[@]}"; do wait "$each"; done
}
trap 'stop_beside; rm -rf "$logs"' EXIT

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then sudo -n "$@"; else return 1; fi; }

daemons_path() { printf %s "$PATH:/usr/sbin"; printf ':%s' /usr/lib/postgresql/*/bin; }
daemons=$(daemons_path)

need_debian() {  # need_debian COMMAND "[OPTION] PACKAGE" WHAT-IT-TESTS
    PATH=$daemons command -v "$1" >/dev/null && return 0
    echo "installing ${2##* } ..."
    { as_root apt-get install -y -q $2 || { as_root apt-get update -q && as_root apt-get install -y -q $2; }; } >/dev/null 2>&1
    daemons=$(daemons_path)
    PATH=$daemons command -v "$1" >/dev/null || left_out+=("$3: $1 is missing and ${2##* } could not be installed")
}

need_debian mosquitto_sub mosquitto-clients "scenarios with mosquitto_pub and mosquitto_sub"
need_debian strace strace "the proof that acknowledgements follow the sync"
need_debian systemd-analyze "--no-install-recommends systemd" "the check of unit files by systemd"
need_debian chromium "--no-install-recommends chromium" "the dashboard in a browser"
need_debian node nodejs "scenarios with mqtt.js"
if command -v npm >/dev/null; then
    (cd tests/scenarios && npm ci --silent --no-audit --no-fund >/dev/null 2>&1) || left_out+=("scenarios with mqtt.js: npm could not install it")
else
    left_out+=("scenarios with mqtt.js: npm is missing")
fi

need_debian redis-server "--no-install-recommends redis-server" "tests on the real Redis"
need_debian mariadbd "--no-install-recommends mariadb-server" "tests on the real MariaDB"
need_debian postgres "--no-install-recommends postgresql" "tests on the real PostgreSQL"

echo "fetching the real servers beside the installation: JDK, Maven, Kafka, HBase, Redis, MariaDB and PostgreSQL ..."
set -m  # so that it can be interrupted with all that it has started
$python -m ops.services fetch >"$logs/fetched" 2>&1 &
beside=($!)
set +m
make --no-print-directory PYTHON="$python" .venv/.installed-dev || exit 1
has_servers=yes
wait "${beside[0]}" || { has_servers=; left_out+=("tests on real servers: $(grep -m1 "^services: " "$logs/fetched")"); }
beside=()

if [ "${1:-}" = --nightly ]; then  # too long for a day: minutes on a new machine
    need_debian qemu-aarch64-static "--no-install-recommends qemu-user-static" "a hub on arm64"
    need_debian aarch64-linux-gnu-gcc "--no-install-recommends gcc-aarch64-linux-gnu" "the wheel for arm64"
    need_debian mmdebstrap "--no-install-recommends mmdebstrap" "Debian's Python for arm64"
    need_debian arch-test "--no-install-recommends arch-test" "Debian's Python for arm64"
    need_debian lintian "--no-install-recommends lintian" "the check of the Debian package"
    need_debian buildah "--no-install-recommends buildah" "the container image"
    bash ops/go_tools.sh .venv/go || left_out+=("Helm, kubeconform and Prometheus on their files: the programs need Go and its module proxy")
fi

for reason in "${left_out[@]:-}"; do [ -n "$reason" ] && echo "NOT RUN  $reason"; done
if [ "${#left_out[@]}" -gt 0 ]; then
    if [ "${CI:-}" = true ]; then echo "CI=true: every test must run; install what is missing"; exit 1; fi
    export IOTHUB_TESTS_LEFT_OUT=1
fi

if [ "${1:-}" = --nightly ]; then
    [ -n "$has_servers" ] && servers=tests/services || servers=
    larger="tests/integration/spark tests/integration/faults tests/integration/quota/test_rates.py tests/unit/spark tests/property tests/simulation/test_queued.py"  # more events, kinds, examples and schedules than by day
    IOTHUB_NIGHTLY=1 exec $bin/python -m pytest -q tests/nightly $larger $servers
fi

summary=$logs/summary
failures=$logs/failures
touch "$summary" "$failures"

cpu() {  # into $spent: the seconds of processor of what this shell has started and waited for
    local minutes
    minutes=$(mktemp "$logs/times.XXXXXX")
    times >"$minutes"  # not in a pipe: that would be another shell
    spent=$(tail -n 1 "$minutes" | tr ms '  ' | awk '{ printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }')
}

step() {  # step NAME COMMAND...: run it, note how it ended, how long it took and how much processor
    local name=$1 began=$SECONDS spent before ended=ok log counts
    log=$(mktemp "$logs/step.XXXXXX")
    cpu
    before=$spent
    shift
    echo "$name:"
    "$@" 2>&1 | tee -i "$log" || { ended=FAILED; grep -E '^(FAILED|ERROR) ' "$log" | cut -c1-200 >>"$failures"; }
    counts=$(grep -E '^[0-9]+ (passed|failed|error)|no tests ran' "$log" | sed 's/ in .*//' | paste -sd ';')
    cpu
    printf '%-6s %4d s (%4d s of CPU)  %s%s\n' "$ended" $((SECONDS - began)) $((spent - before)) "$name" "${counts:+: $counts}" >>"$summary"
    sed -n '/^SERVER REPLACED /p' "$log" | cut -c1-200 >>"$summary"
}

behind=  # what makes a step give way to those beside it
tests() { $behind $bin/python -m pytest -q -rfE --durations 12 --durations-min 3 "$@"; }  # the log says what takes long

plain_tests() { IOTHUB_PURE_PYTHON=1 tests "$@"; }

packaged=tests/services/sql_and_redis  # they need neither HBase nor Kafka, and have servers of their own
on_packaged() { IOTHUB_SERVICES_DIR=$PWD/.services/packaged IOTHUB_SERVICES_SHIFT=50 tests "$packaged"; }

broker=(tests/services/test_kafka_*.py tests/services/test_stream*.py)  # they need Kafka alone, and have one that they may kill
on_broker() {
    local libraries=${IOTHUB_SERVICES_DIR:-$PWD/.services}/lib  # fetched once
    mkdir -p .services/broker && ln -sfn "$(realpath "$libraries")" .services/broker/lib
    IOTHUB_SERVICES_DIR=$PWD/.services/broker IOTHUB_SERVICES_SHIFT=60 tests "${broker[@]}"
}

run_beside() {  # run_beside NAME COMMAND...: they start servers, wait for them most of the time, and stop them
    set -m  # so that it can be interrupted, and stops what it has started
    (trap 'exit 130' INT; step "$@") >"$logs/servers.${#beside[@]}" 2>&1 &
    beside+=($!)
    set +m
}

if [ -n "$has_servers" ]; then
    echo "real servers: their tests run beside the next steps"
    run_beside "real HBase and Kafka, beside the next steps" tests --ignore $packaged "${broker[@]/#/--ignore=}" tests/services
    run_beside "real Kafka alone, beside them, too" on_broker
    run_beside "real MariaDB, PostgreSQL and Redis, beside them, too" on_packaged
fi

behind="nice -n 10"  # these steps measure nothing and take all processors; the tests on real servers, which take longest, take theirs first
spread="-n $(nproc) --dist loadfile"  # what measures nothing, and may run beside the servers; a hub takes a port that is free
step "format" $bin/ruff format --check -q .
step "lint" $bin/ruff check -q .
step "types" $behind $bin/mypy
jobs="tests/unit/spark tests/integration/spark tests/integration/usage tests/integration/jobs/test_real_job.py"  # a Java for each worker, and the runs' own
step "units, contracts, properties, simulation, structure" tests $spread tests/unit tests/contract tests/property tests/simulation tests/fuzz tests/architecture tests/conformance --ignore tests/unit/spark
step "jobs on Spark" tests $spread $jobs
words="tests/integration/cli tests/integration/pages"  # commands and their imports: they measure nothing
step "commands and guides, word by word" tests -n "$(nproc)" --dist worksteal $words
compiled_too="inbound_crashes outbound_crashes publisher_order mqtt_codec mqtt_cost wire_against_mqtt connect_plain filters router wheel buckets websocket_frames packed_sessions"  # properties of modules that are compiled
smoke="connect publish sessions shared"  # of tests/behaviour: enough to know that the hub around the plain twin is the same
step "the plain twin: engine, its properties, a smoke set" plain_tests $spread tests/unit/engine $(printf 'tests/property/test_%s.py ' $compiled_too) $(printf 'tests/behaviour/test_%s.py ' $smoke)
behind=
alone=$(printf 'tests/integration/faults/test_%s.py ' few_descriptors first_packets hostile_clients noisy_neighbours stop)
alone+="tests/integration/quota/test_applied_limits.py tests/integration/quota/test_rates.py tests/scenarios/durability"  # they measure, or take the whole machine
browser=tests/integration/dashboard  # Playwright keeps an event loop of its own in the process
waiting="-n $(($(nproc) + 1)) --dist loadfile"  # these wait for processes, time-outs and each other: two workers take half a processor
step "real processes, sockets and clients" tests $waiting tests/integration tests/behaviour tests/scenarios $(printf -- '--ignore %s ' $words $alone $jobs $browser)
step "the dashboard in a browser" tests $spread $browser
if [ "${#beside[@]}" -gt 0 ]; then
    echo "waiting for the tests on real servers ..."
    for each in "${beside[@]}"; do wait "$each" || echo "FAILED         tests on real servers did not come to their end" >>"$summary"; done
    beside=()
    cat "$logs"/servers.*
fi
step "faults and rates, one after the other" tests $alone

echo
cat "$summary"
head -n 12 "$failures"
[ "$(wc -l <"$failures")" -gt 12 ] && echo "... and $(($(wc -l <"$failures") - 12)) more"
if grep -q ^FAILED "$summary"; then echo "some tests failed"; exit 1; fi
echo "all tests passed"

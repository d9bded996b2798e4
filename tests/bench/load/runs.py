"""One broker, one run: start it afresh (or take one that runs), load it, and find what speaks against the run.

Knows no table and no turn.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import tempfile
import time

from measures import kind, main_value
from processes import cpu_set, free_ports, listens, start_time, tree

TOOLS = pathlib.Path(__file__).resolve().parent

MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
max_queued_messages 100000
max_inflight_messages 20
log_dest none
"""
BROKERS = {
    "mosquitto": {
        "start": "mosquitto -c {dir}/mosquitto.conf",
        "files": {"mosquitto.conf": MOSQUITTO_CONF},
        "version": "mosquitto -h",
    },
    "floor": {"start": "{tools}/mqttfloor {port}", "only": ["pair-q0", "pair-w1"]},
    "floor-qos1": {"start": "{tools}/mqttfloor {port} qos1", "only": ["pair-q1", "pair-q1-w1", "pairs-1000"]},
    "floor-bulk": {"start": "{tools}/mqttfloor {port} bulk", "only": ["pair-q0"]},
    "floor-bulk-qos1": {"start": "{tools}/mqttfloor {port} bulk qos1", "only": ["pair-q1", "pairs-1000"]},
}

MUST_BE_ZERO = ("lost", "duplicated", "out_of_order", "misrouted", "foreign", "corrupt")
FATAL = (
    r"Traceback \(most recent|AddressSanitizer|ThreadSanitizer|runtime error:|[Ss]egmentation fault|core dumped|panic:"
)


class Broker:
    """A broker for one run: started afresh, or one that runs already."""

    def __init__(self, name: str, spec: dict, o: argparse.Namespace):
        self.name, self.spec, self.o = name, spec, o
        self.proc = self.log = self.folder = None
        self.port, self.pid = spec.get("port"), spec.get("pid")
        self.problems: list[str] = []

    def fill(self, text: str) -> str:
        for key, value in {
            "port": self.port,
            "port2": self.port + 1,
            "port3": self.port + 2,
            "dir": self.folder and self.folder.name,
            "tools": TOOLS,
        }.items():
            text = text.replace("{" + key + "}", str(value))
        return os.path.expandvars(text)

    def start(self) -> bool:
        if self.pid is None:
            self.folder = tempfile.TemporaryDirectory(prefix="compare-")
            os.chmod(self.folder.name, 0o755)
            self.port = free_ports(3)
            for file, text in self.spec.get("files", {}).items():
                (pathlib.Path(self.folder.name) / file).write_text(self.fill(text))
            cpus = self.spec.get("cpus") or self.o.broker_cpus
            self.log = open(pathlib.Path(self.folder.name) / "broker.log", "w+b")  # noqa: SIM115  (open as long as the broker runs)
            try:
                self.proc = subprocess.Popen(
                    shlex.split(self.fill(self.spec["start"])),
                    stdin=subprocess.DEVNULL,
                    stdout=self.log,
                    stderr=self.log,
                    start_new_session=True,
                    env=os.environ | {k: self.fill(v) for k, v in self.spec.get("env", {}).items()},
                    preexec_fn=(lambda: os.sched_setaffinity(0, cpu_set(cpus))) if cpus else None,
                )
            except OSError as e:
                self.problems.append(f"did not start: {e}")
                return False
            self.pid = self.proc.pid
        end = time.monotonic() + self.spec.get("ready_seconds", 20)
        while time.monotonic() < end:
            if self.ended():
                self.problems.append(f"ended before it was ready ({self.ended()}): {self.tail()}")
                return False
            is_said = self.spec.get("ready_text", "") in self.said()
            if is_said and listens(tree(self.pid), self.port) and self.load("conn -n 1 -t 0 --phase-timeout 3")["ok"]:
                return True
            time.sleep(0.1)
        self.problems.append(f"not ready: does not listen on port {self.port}, or refuses clients: {self.tail()}")
        return False

    def ended(self) -> str | None:
        """How the broker's first process came to an end, if it did."""
        if self.proc is None:
            return None if start_time(self.pid) else "process is gone"
        code = self.proc.poll()
        if code is None:
            return None
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    def said(self) -> str:
        """What it has logged."""
        if not self.log:
            return ""
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def tail(self) -> str:
        lines = self.said().strip().splitlines()
        return " / ".join(lines[-3:])[-300:]

    def load(self, spec: str) -> dict:
        mode, *rest = shlex.split(spec)
        o = self.o
        command = [
            str(o.tool),
            mode,
            "-p",
            str(self.port),
            "-t",
            str(o.seconds),
            "-w",
            str(o.warmup),
            "-T",
            str(o.threads),
            *rest,
            *shlex.split(self.fill(self.spec.get("args", ""))),
            "--pid",
            str(self.pid),
            "--label",
            self.name,
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=o.limit,
                preexec_fn=(lambda: os.sched_setaffinity(0, cpu_set(o.load_cpus))) if o.load_cpus else None,
            )
        except subprocess.TimeoutExpired:
            return {"ok": False, "error": f"mqttload not done within {o.limit} s"}
        try:
            result = json.loads(done.stdout)
        except ValueError:
            result = {"error": f"mqttload gave no result: {done.stderr.strip()[-200:]}"}
        result["ok"] = bool(result.get("ok")) and done.returncode == 0
        result["command"] = shlex.join(command)
        return result

    def run(self, spec: str) -> dict:
        """One measured run; "invalid" lists everything that speaks against it."""
        before = tree(self.pid)
        result = self.load(spec)
        bad = []
        if how := self.ended():
            bad.append(f"broker died during the run ({how})")
        elif not self.spec.get("children_may_exit"):
            after = tree(self.pid)
            gone = [p for p, t in before.items() if after.get(p) != t]
            if gone:
                bad.append(f"{len(gone)} of the broker's processes died during the run")
        faults = dict(result.get("faults", {}))
        if self.spec.get("children_may_exit") and set(faults) == {"broker_child_died"}:
            result["ok"] = not result.get("error")
        faults.pop("broker_process_died", None)  # said better above
        faults.pop("broker_child_died", None)
        for key in MUST_BE_ZERO:  # not taken on trust from "ok"
            if result.get(key):
                faults[key] = result[key]
        if faults:
            bad.append(
                ", ".join(f"{k} {v}" for k, v in faults.items())
                + (f" ({result['first_problem']})" if result.get("first_problem") else "")
            )
        if result.get("error"):
            bad.append(result["error"])
        if not result["ok"] and not bad:
            bad.append("mqttload said no")
        if not bad and not main_value(spec, result) and kind(spec) != "conn":  # conn: memory may not have grown
            bad.append("measured nothing")
        result["invalid"] = bad
        return result

    def stop(self) -> list[str]:
        """End what start() started, and nothing else.  Returns what was wrong with its end or its log."""
        bad = []
        if self.proc:
            died = self.ended()
            if not died:
                self.proc.terminate()
                try:
                    code = self.proc.wait(10)
                    if code < 0 and code != -signal.SIGTERM:
                        bad.append(f"crashed while stopping ({signal.Signals(-code).name})")
                except subprocess.TimeoutExpired:
                    bad.append("did not stop within 10 s of SIGTERM")
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.proc.pid, signal.SIGKILL)
            self.proc.wait()
        if self.log:
            self.log.flush()
            text = pathlib.Path(self.log.name).read_text(errors="replace")
            if found := re.search(self.spec.get("fatal", FATAL), text):
                bad.append(f"its log says: {text[found.start() : found.start() + 160].strip().splitlines()[0]}")
            self.log.close()
        if self.folder:
            self.folder.cleanup()
        return bad


def one_run(name: str, spec: dict, workload: str, o: argparse.Namespace) -> dict:
    broker = Broker(name, spec, o)
    result = {"invalid": []}
    try:
        if broker.start():
            result = broker.run(workload)
        result["invalid"] = broker.problems + result["invalid"]
    finally:
        ending = broker.stop()
    result["invalid"] += ending
    return result


def version(spec: dict) -> str:
    if not spec.get("version"):
        return ""
    try:
        command = os.path.expandvars(spec["version"]).replace("{tools}", str(TOOLS))
        done = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=10)
        return (done.stdout + done.stderr).strip().splitlines()[0]
    except (OSError, IndexError, subprocess.TimeoutExpired):
        return "unknown"

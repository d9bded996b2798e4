"""Further brokers of `make bench`, from the TOML file of BENCH_PEERS: they take turns with Mosquitto and the hub. Nothing is asked of them.

A table a broker, as `load/peers.toml` has them: what `load/runs.py` knows of one, and `{accounts}`, the folder with the file `passwords`
(Mosquitto's format) of the same devices. Without `args` a client gives the name and the secret that it gives to the hub.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

from brokers import IDENTITY, Broker
from workloads import Workload

KEYS = {
    "start": str,
    "files": dict,
    "args": str,
    "only": list,
    "cpus": str,
    "env": dict,
    "fatal": str,
    "ready_seconds": int,
    "ready_text": str,
    "children_may_exit": bool,
    "version": str,
}
PLAIN = {"mosquitto": "many", "mosquitto-few": "few"}
"""Baselines of the workloads that peers share, and whose accounts they have."""


class PeersError(Exception):
    """The file cannot be used; says where and why."""


def read(path: Path, taken: frozenset[str]) -> dict[str, Broker]:
    """Return the brokers by name. `taken`: names of others. Raises PeersError."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PeersError(f"{path}: {error}") from None
    tables.pop("workloads", None)  # of `load/compare.py`
    if not tables:
        raise PeersError(f"{path}: no broker in it; a broker is a table with `start`, see tests/bench/load/peers.toml")
    return {name: _checked(path, name, table, taken) for name, table in tables.items()}


def _checked(path: Path, name: str, table: Any, taken: frozenset[str]) -> Broker:
    where = f"{path}: [{name}]"
    if name in taken:
        raise PeersError(f"{where}: the name is taken; give another one")
    if not isinstance(table, dict) or "start" not in table:
        raise PeersError(f"{where}: `start` is missing, the command that starts the broker on {{port}}")
    for key, value in table.items():
        if key not in KEYS:
            raise PeersError(f"{where}: `{key}` is unknown; known are {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]):
            raise PeersError(f"{where}: `{key}` must be a {KEYS[key].__name__}, not {value!r}")
    unset = sorted(set(re.findall(r"\$\{?(\w+)", table["start"])) - set(os.environ))
    if unset:
        raise PeersError(f"{where}: the variable {unset[0]} of `start` is not set")
    program = shlex.split(os.path.expandvars(table["start"]))[0]
    if shutil.which(program) is None:
        raise PeersError(f"{where}: there is no program {program}")
    return {"args": IDENTITY, **table}


def beside(workload: Workload, peers: dict[str, Broker]) -> list[str]:
    """Return the names of those that take part in a workload."""
    if workload.baseline not in PLAIN:
        return []
    patterns = {name: peer.get("only", ["*"]) for name, peer in peers.items()}
    return [name for name in peers if any(fnmatch.fnmatch(workload.name, pattern) for pattern in patterns[name])]


def with_accounts(peer: Broker, folder: Path) -> Broker:
    """Return the broker with `{accounts}` filled in."""

    def filled(value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{accounts}", str(folder))
        return {key: filled(each) for key, each in value.items()} if isinstance(value, dict) else value

    return {key: filled(value) for key, value in peer.items()}

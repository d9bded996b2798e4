"""Further brokers of `make bench`: what the file of BENCH_PEERS may hold, in which workloads they take part, and the picture of all."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "load")]

drawing: Any = import_module("drawing")
peers: Any = import_module("peers")
WORKLOADS: Any = import_module("workloads").WORKLOADS

PAIR, IDLE = (next(each for each in WORKLOADS if each.name.startswith(name)) for name in ("pair QoS 0", "idle"))
PLAIN_TWIN = next(each for each in WORKLOADS if each.baseline == "iothub")


def write(tmp_path: Path, text: str) -> Path:
    (tmp_path / "peers.toml").write_text(text)
    return tmp_path / "peers.toml"


def test_broker_gets_the_accounts_and_takes_part_where_it_says(tmp_path: Path) -> None:
    file = write(tmp_path, '[b]\nstart = "sh -c {port}"\nonly = ["pair*"]\nfiles."c" = "file {accounts}/passwords"\n')

    read = peers.read(file, frozenset())

    assert [peers.beside(each, read) for each in (PAIR, IDLE, PLAIN_TWIN)] == [["b"], [], []]
    broker = peers.with_accounts(read["b"], tmp_path)
    assert (broker["files"], broker["args"]) == ({"c": f"file {tmp_path}/passwords"}, peers.IDENTITY)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no broker in it"),
        ("a = 1", "`start` is missing"),
        ('[iothub]\nstart = "sh"', "the name is taken"),
        ('[a]\nstart = "no-such-program {port}"', "there is no program no-such-program"),
        ('[a]\nstart = "$NO_SUCH_VARIABLE {port}"', "the variable NO_SUCH_VARIABLE of `start` is not set"),
        ('[a]\nstart = "sh"\nstrt = 1', "`strt` is unknown"),
        ('[a]\nstart = "sh"\nonly = "pair"', "`only` must be a list"),
        ("[a", "peers.toml:"),
    ],
)
def test_file_that_cannot_be_used_says_why(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(peers.PeersError, match=why):
        peers.read(write(tmp_path, text), frozenset({"iothub"}))


def test_picture_has_a_bar_for_each_broker_that_made_no_fault() -> None:
    def cells(median: float) -> dict[str, dict[str, float]]:
        return {PAIR.measure: {"median": median}}

    rows = [
        {"broker": "mosquitto", "invalid": [], "cells": cells(10.0)},
        {"broker": "iothub", "invalid": [], "cells": cells(2.0)},
        {"broker": "fast&small", "invalid": [], "cells": cells(4.0)},
        {"broker": "faulty", "invalid": ["lost 1"], "cells": {}},
    ]
    names = [str(row["broker"]) for row in rows]

    picture = drawing.svg([{"name": PAIR.name, "brokers": names, "rows": rows}], "today")

    assert [part in picture for part in (">0.20<", ">0.40<", "fast&amp;small", "faulty")] == [True, True, True, False]

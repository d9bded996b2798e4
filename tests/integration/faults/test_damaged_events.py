"""Damaged records in the session log of a hub that starts over it: left out, counted, and said with the count and a place."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from urllib.request import urlopen

from tests.support.hub import Hub, free_port
from tests.support.raw import RawClient

DAMAGED = 4


def metric(hub: Hub) -> int:
    with urlopen(f"http://127.0.0.1:{hub.ports['http']}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [line.split()[1] for line in lines if line.startswith("iothub_session_events_damaged_total ")]
    return int(value)


def test_damaged_events_are_counted_and_told(hub: Hub) -> None:
    """One alarm names the first; the warning has the count, the metric, too, and `state verify` ends with 1."""
    hub.ports["http"] = free_port()
    hub.start()
    with RawClient(hub.ports["tcp"]) as client:
        client.connect("s", "acme/dev1", clean=False)
        for number in range(DAMAGED + 2):
            client.subscribe((f"t/{number}", 1))
    assert hub.stop() == 0
    with closing(sqlite3.connect(hub.data_dir / "events.db")) as connection, connection:
        some = "SELECT offset FROM session_event WHERE CAST(value AS TEXT) LIKE '%session.subscribed%' ORDER BY offset LIMIT ?"
        connection.execute(f"UPDATE session_event SET value = x'ff' WHERE offset IN ({some})", (DAMAGED,))
    (hub.data_dir / "state.db").unlink()  # so that the whole log is folded
    hub.start()

    assert metric(hub) == DAMAGED
    deadline = time.monotonic() + 10
    while "damaged session events were left out" not in hub.log and time.monotonic() < deadline:
        time.sleep(0.1)
    (told,) = [json.loads(line) for line in hub.log.splitlines() if "damaged session events were left out" in line]
    assert (told["count"], told["total"]) == (DAMAGED, DAMAGED)
    assert told["last"].endswith("damaged event (it is not UTF-8)")
    shown = json.loads(hub.run("-o", "json", "session", "show", "acme", "s").stdout)
    assert [each["name"] for each in shown["subscriptions"]] == [f"t/{DAMAGED}", f"t/{DAMAGED + 1}"]
    assert hub.run("state", "verify", check=False).returncode == 1

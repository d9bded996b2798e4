"""A hub with 256 descriptors and 1,000 who want in: who is there is served, and there is room again afterwards."""

from __future__ import annotations

import time
from pathlib import Path

from tests.support.crowd import Crowd
from tests.support.datadirs import fresh_hub
from tests.support.raw import RawClient
from tests.support.witness import Witness, cpu_s
from tests.support.wrapped import WrappedHub

FILES = 256
WANTING = 1000


def test_descriptors_run_out_and_nobody_is_harmed(tmp_path: Path) -> None:
    """No busy loop, the witness plays on, no acknowledged message is in danger, connects work again within 5 s."""
    plain = fresh_hub(tmp_path, mqtt__connect_timeout="30s")
    hub = WrappedHub(plain.data_dir, settings=plain.settings, prefix=("prlimit", f"--nofile={FILES}:{FILES}"))
    hub.start()
    assert hub.process is not None
    pid, port = hub.process.pid, hub.ports["tcp"]
    try:
        with RawClient(port) as keeper, Crowd(port) as crowd:
            keeper.connect("keeper", "acme/dev1", clean=False)
            keeper.subscribe(("keeper", 1))
            with Witness(hub):
                for _ in range(WANTING):
                    crowd.add()
                crowd.wait_closed(1.0)
                for number in range(1, 20):
                    keeper.publish("keeper", b"x", 1, number)
            begun, used = time.monotonic(), cpu_s(pid)
            crowd.wait_closed(3.0)
            share = (cpu_s(pid) - used) / (time.monotonic() - begun)
        freed = time.monotonic()
        with RawClient(port) as late:
            assert late.connect("late", "acme/dev2").code == 0
        assert time.monotonic() - freed < 5
        assert share < 0.2, f"{share:.0%} of a processor"
        assert "Traceback" not in hub.log
        assert hub.stop() == 0
    finally:
        hub.close()

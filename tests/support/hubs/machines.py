"""Machines of one test: network namespaces with a network between them that delays, loses and cuts as the test says.

Each machine reaches the test's servers at the ports of its own loopback, and the test reaches what listens there at the same port of the real one;
the machines reach each other at `address(number)` alone. Needs root, `ip` (iproute2) and /dev/net/tun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.support.hubs.switch import address, ip

ROOT = Path(__file__).resolve().parents[3]
__all__ = ["Network", "address", "machines"]


class Network:
    """The wires between the machines 1, 2, 3 ..."""

    def __init__(self, names: Mapping[int, str], switch: subprocess.Popen[str]) -> None:
        self._names = names
        self._switch = switch

    def command(self, machine: int) -> list[str]:
        """What a command begins with that is to run on that machine."""
        return ["ip", "netns", "exec", self._names[machine]]

    def cut(self, *wires: tuple[int, int]) -> None:
        """Nothing comes from one to the other any more; the other way it does."""
        self._order(wires=wires, is_cut=True)

    def part(self, *machines: int) -> None:
        """Cut these off from all others, both ways."""
        others = [machine for machine in self._names if machine not in machines]
        self.cut(*((a, b) for one in machines for other in others for a, b in ((one, other), (other, one))))

    def shape(self, delay_s: float, jitter_s: float, loss: float) -> None:
        """How late packets come on every wire, and which share of them is lost."""
        self._order(delay_s=delay_s, jitter_s=jitter_s, loss=loss)

    def heal(self) -> None:
        """A fast network without faults."""
        self._order(is_cut=False, delay_s=0.0, jitter_s=0.0, loss=0.0)

    def carried(self) -> tuple[int, int]:
        """Return the packets that came across, and those that were lost, since the beginning."""
        counts = self._order(wires=()).values()
        return sum(carried for carried, _ in counts), sum(lost for _, lost in counts)

    def _order(self, **order: object) -> dict[str, list[int]]:
        assert self._switch.stdin is not None
        assert self._switch.stdout is not None
        self._switch.stdin.write(json.dumps(order) + "\n")
        self._switch.stdin.flush()
        line = self._switch.stdout.readline()
        assert line, f"the switch ended with {self._switch.wait(10)}"
        return cast("dict[str, list[int]]", json.loads(line))


@contextmanager
def machines(inward: Mapping[int, Sequence[int]], outward: Sequence[int], seed: int) -> Iterator[Network]:
    """`inward`: by machine, the ports at which the test reaches it; `outward`: the servers' ports. All is gone afterwards."""
    names = {machine: f"iothub-{os.getpid()}-{machine}" for machine in inward}
    switch = None
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        plan = {
            "seed": seed,
            "machines": {
                machine: {"namespace": name, "inward": list(inward[machine]), "outward": list(outward)}
                for machine, name in names.items()
            },
        }
        switch = subprocess.Popen(
            [sys.executable, "-m", "tests.support.hubs.switch", json.dumps(plan)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert switch.stdout is not None
        assert switch.stdout.readline(), "the switch could not begin"
        yield Network(names, switch)
    finally:
        if switch is not None:
            switch.kill()
            switch.communicate()
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], check=False, stderr=subprocess.DEVNULL)

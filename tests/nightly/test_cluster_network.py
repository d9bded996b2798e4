"""Three hubs on machines of their own (network namespaces), every store on the real servers, while the network between them is slow, lossy and cut.

IOTHUB_NETWORK_SEED repeats a night's losses and choices, IOTHUB_NETWORK_HUBS takes another number of hubs. Needs root.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ops.services.services import Services
from tests.support.hubs.cluster_load import Run, under_load
from tests.support.hubs.linked_hubs import linked_hubs
from tests.support.hubs.machines import Network, address, machines
from tests.support.ports import free_port

SEED = int(os.environ.get("IOTHUB_NETWORK_SEED") or int.from_bytes(os.urandom(3)))
HUBS = int(os.environ.get("IOTHUB_NETWORK_HUBS", "3"))
DELAY_S, JITTER_S, LOSS = 0.02, 0.005, 0.01
SHORT_S = 3.0  # longer than a link may be silent, shorter than what two hubs wait before one of them expels the other
LONG_S = 20.0  # longer than a hub goes without any link
WELL_S = 60.0

_LISTEN = (
    "import socket; s = socket.create_server(('0.0.0.0', 5000)); print(flush=True)\nwhile True: s.accept()[0].close()"
)
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 5000), 1.5)"


def reaches(network: Network, one: int, other: int) -> bool:
    command = [*network.command(one), sys.executable, "-c", _CONNECT, address(other)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0


def test_network_of_the_tests_does_what_they_say() -> None:
    """Or the other test would prove nothing: cuts of one direction, both, delay, loss, and ways to the test's servers and back."""
    inward, outward = free_port(), free_port()
    server = socket.create_server(("127.0.0.1", outward))
    threading.Thread(target=_greet, args=(server,), daemon=True).start()
    with machines({1: [inward], 2: [], 3: []}, [outward], 1) as network:
        listeners = [
            subprocess.Popen([*network.command(machine), sys.executable, "-c", _LISTEN], stdout=subprocess.PIPE)
            for machine in (1, 2, 3)
        ]
        try:
            for listener in listeners:
                assert listener.stdout is not None
                listener.stdout.readline()
            assert reaches(network, 1, 2)
            network.cut((2, 1))
            assert not reaches(network, 1, 2)  # the answer does not come
            assert reaches(network, 1, 3)
            network.heal()
            network.part(3)
            assert not reaches(network, 3, 2)
            assert reaches(network, 2, 1)
            network.heal()
            network.shape(0.2, 0.0, 0.0)
            begun = time.monotonic()
            assert reaches(network, 1, 2)
            assert time.monotonic() - begun > 0.4
            network.shape(0.0, 0.0, 1.0)
            assert not reaches(network, 1, 2)
            read = f"import socket; print(socket.create_connection(('127.0.0.1', {outward})).recv(9))"
            answer = subprocess.run([*network.command(3), sys.executable, "-c", read], capture_output=True, check=True)
            assert answer.stdout == b"b'hello'\n"
        finally:
            for listener in listeners:
                listener.kill()
                listener.communicate()
    assert (
        f"iothub-{os.getpid()}-"
        not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    )
    server.close()


def _greet(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            with server.accept()[0] as connection:
                connection.sendall(b"hello")


@pytest.mark.timeout(1800)
def test_nothing_acknowledged_is_lost_whatever_the_network_does(services: Services, tmp_path: Path) -> None:
    """QoS 1 and 2: a slow and lossy network, one direction that is cut, two hubs that lose each other, one that loses all."""

    async def script(run: Run) -> None:
        network, hubs = run.linked.network, run.linked.hubs
        assert network is not None
        wanted = run.linked.all_up()

        async def fault(what: str, begin: Callable[[], None], hold_s: float) -> None:
            async def act() -> None:
                begin()
                await asyncio.sleep(hold_s)
                network.heal()

            def back() -> bool:
                return all(hub.is_ready() and hub.states() == wanted for hub in hubs)

            await run.blow(what, act, back, hold_s + WELL_S)
            await asyncio.sleep(2.0)

        one, other = run.chance.sample(range(1, HUBS + 1), 2)
        lonely = run.chance.randint(1, HUBS)
        await fault(
            f"{DELAY_S * 1000:g} ms +- {JITTER_S * 1000:g}, {LOSS:.0%} lost",
            lambda: network.shape(DELAY_S, JITTER_S, LOSS),
            20.0,
        )
        await fault(f"{one} to {other} cut for {SHORT_S:g} s", lambda: network.cut((one, other)), SHORT_S)
        await fault(
            f"{one} and {other} cut for {SHORT_S:g} s", lambda: network.cut((one, other), (other, one)), SHORT_S
        )
        await fault(f"{one} to {other} cut for {LONG_S:g} s", lambda: network.cut((one, other)), LONG_S)
        await fault(f"{lonely} cut off for {SHORT_S:g} s", lambda: network.part(lonely), SHORT_S)
        await fault(f"{lonely} cut off for {LONG_S:g} s", lambda: network.part(lonely), LONG_S)
        await fault(f"everybody alone for {SHORT_S:g} s", lambda: network.part(*range(1, HUBS)), SHORT_S)

    with linked_hubs(tmp_path, services, HUBS, seed=SEED, on_machines=True) as linked:
        outcome = asyncio.run(under_load(linked, script, seed=SEED, rate_per_s=10.0))
        assert linked.network is not None
        carried, lost = linked.network.carried()
    sys.stdout.write(f"{outcome.report()}\npackets between hubs: {carried} carried, {lost} lost\n")

    assert not outcome.wrong, outcome.report()
    assert outcome.ledger.acknowledged > 500, outcome.report()
    assert lost > 0

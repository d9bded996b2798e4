"""SUBACKs and deliveries between two hubs on Kafka, HBase, PostgreSQL and Redis: `python -m tests.bench.bench_cluster [--races N]`.

A race: a client at one hub subscribes to a topic that nobody had; as soon as it has its SUBACK, another client publishes there, at QoS 1, at the
other hub or at the same one, in turns. A message that does not come within 10 s is missed. Prints the medians and 95th percentiles of both waits,
and exits with 1 if a message was missed. Starts the servers of `make services` that do not run, and stops them again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from ops.services.errors import ServicesError
from ops.services.servers import ALWAYS
from ops.services.services import Services
from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.linked_hubs import Linked, linked_hubs
from tests.support.servers.running import running

USERNAME = "acme/dev1"
REPORT_EVERY = 1_000


class Waits:
    """Milliseconds from SUBSCRIBE to SUBACK, and from PUBLISH to its delivery; `missed`: messages that did not come."""

    def __init__(self) -> None:
        self.subacks: list[float] = []
        self.deliveries: list[float] = []
        self.missed = 0

    def line(self, name: str) -> str:
        return (
            f"| {name} | {_shown(self.subacks)} | {_shown(self.deliveries)} | {len(self.subacks):,} | {self.missed} |"
        )


def _shown(waits: list[float]) -> str:
    if len(waits) < 2:
        return "-"
    cuts = quantiles(waits, n=20)
    return f"{cuts[9]:.2f} / {cuts[18]:.2f}"


def race(subscriber: RawClient, publisher: RawClient, number: int, waits: Waits) -> None:
    """Subscribe, publish, receive, unsubscribe."""
    topic = f"race/{number}"
    began = perf_counter()
    answer = subscriber.subscribe((topic, 1))
    waits.subacks.append((perf_counter() - began) * 1000)
    if answer.code >= 0x80:
        raise SystemExit(f"bench: SUBACK {answer.code:#x} for {topic}; expected 1")
    began = perf_counter()
    publisher.send(publisher.publish_bytes(topic, b"after the SUBACK", 1, 1 + number % 65_535))
    try:
        message = subscriber.expect(PUBLISH)
    except TimeoutError:
        waits.missed += 1
    else:
        waits.deliveries.append((perf_counter() - began) * 1000)
        assert message.packet_id is not None
        subscriber.ack(PUBACK, message.packet_id)
    publisher.expect(PUBACK)
    subscriber.unsubscribe(topic)


def races(linked: Linked, count: int, *, is_clean: bool) -> dict[str, Waits]:
    """`count` races with the other hub and as many with the same one, the session transient or persistent."""
    ports = [hub.ports["tcp"] for hub in linked.hubs]
    kind = "transient" if is_clean else "persistent"
    found = {f"{kind}, publisher at the other hub": Waits(), f"{kind}, publisher at the same hub": Waits()}
    with RawClient(ports[0]) as subscriber, RawClient(ports[1]) as other, RawClient(ports[0]) as same:
        subscriber.connect(f"subscriber-{kind}", USERNAME, clean=is_clean)
        other.connect("publisher-other", USERNAME)
        same.connect("publisher-same", USERNAME)
        for number in range(count):
            for publisher, waits in zip((other, same), found.values(), strict=True):
                race(subscriber, publisher, number, waits)
            if sys.stderr.isatty() and number % REPORT_EVERY == 0:
                sys.stderr.write(f"\r{kind}: {number:,} of {count:,}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--races", type=int, default=1_000, help="of each kind of session (default 1000)")
    options = parser.parse_args()
    found: dict[str, Waits] = {}
    try:
        with ExitStack() as held:
            services = Services(say=lambda text: print(text, file=sys.stderr))
            for name in ALWAYS:
                held.enter_context(running(services, name))
            path = Path(held.enter_context(tempfile.TemporaryDirectory()))
            linked = held.enter_context(linked_hubs(path, services, 2))
            linked.start()
            for is_clean in (True, False):
                found |= races(linked, options.races, is_clean=is_clean)
    except ServicesError as error:
        sys.exit(f"bench: {error}")
    print(
        "| session | SUBACK, ms: p50 / p95 | delivery, ms: p50 / p95 | races | missed |\n| --- | --: | --: | --: | --: |"
    )
    for name, waits in found.items():
        print(waits.line(name))
    return int(any(waits.missed for waits in found.values()))


if __name__ == "__main__":
    sys.exit(main())

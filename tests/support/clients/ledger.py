"""What a load was promised and what it got: the judge of every durability test, outside the hub.

Knows no packet and no socket. Publishers report what they published and what was acknowledged, subscribers what reached the
application; `verdict` compares. A message is (topic, counter): each topic has one publisher and one QoS, so order is per topic.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Stream:
    """One topic: what its publisher did."""

    topic: str
    qos: int
    is_persistent: bool
    published: int = 0  # counters 1..published were sent at least once
    acknowledged: set[int] = field(default_factory=set)


@dataclass
class Receipt:
    """What one subscriber was given, per topic and in order. `is_durable`: it may lose nothing."""

    subscriber: str
    is_durable: bool
    prefixes: tuple[str, ...]
    got: defaultdict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def wants(self, topic: str) -> bool:
        return topic.startswith(self.prefixes)


class Ledger:
    """Every stream and every receipt of one run, and what was seen to be wrong on the way."""

    def __init__(self) -> None:
        self.streams: dict[str, Stream] = {}
        self.receipts: list[Receipt] = []
        self.violations: list[str] = []

    def stream(self, topic: str, qos: int, *, is_persistent: bool) -> Stream:
        return self.streams.setdefault(topic, Stream(topic, qos, is_persistent))

    def receipt(self, subscriber: str, prefixes: tuple[str, ...], *, is_durable: bool) -> Receipt:
        receipt = Receipt(subscriber, is_durable, prefixes)
        self.receipts.append(receipt)
        return receipt

    def wrong(self, who: str, what: str) -> None:
        if len(self.violations) < 200:
            self.violations.append(f"{who}: {what}")

    @property
    def acknowledged(self) -> int:
        return sum(len(stream.acknowledged) for stream in self.streams.values())

    @property
    def delivered(self) -> int:
        return sum(len(counters) for receipt in self.receipts for counters in receipt.got.values())

    def missing(self) -> int:
        """Acknowledged messages that a durable subscriber has not got (yet)."""
        return sum(
            len(stream.acknowledged.difference(receipt.got[stream.topic]))
            for receipt in self.receipts
            if receipt.is_durable
            for stream in self.streams.values()
            if receipt.wants(stream.topic)
        )

    def verdict(self) -> list[str]:
        """Everything that is wrong; empty when the hub kept its word."""
        found = list(self.violations)
        for receipt in self.receipts:
            for topic, counters in receipt.got.items():
                found += judge_order(receipt, self.streams.get(topic), topic, counters)
            if receipt.is_durable:
                for stream in self.streams.values():
                    if receipt.wants(stream.topic):
                        found += judge_loss(receipt, stream)
        return found

    def summary(self) -> str:
        repeated = sum(
            len(counters) - len(set(counters)) for receipt in self.receipts for counters in receipt.got.values()
        )
        published = sum(stream.published for stream in self.streams.values())
        return (
            f"{published} published, {self.acknowledged} acknowledged, {self.delivered} delivered to "
            f"{len(self.receipts)} subscribers, {repeated} of them again"
        )


def judge_loss(receipt: Receipt, stream: Stream) -> list[str]:
    lost = sorted(stream.acknowledged.difference(receipt.got[stream.topic]))
    return [f"{receipt.subscriber}: LOST {shape_of_loss(lost, receipt.got[stream.topic], stream)}"] if lost else []


def shape_of_loss(lost: list[int], got: list[int], stream: Stream) -> str:
    """Where the holes are: a lost prefix, middle or suffix point at different culprits."""
    first, last = (min(got), max(got)) if got else (stream.published + 1, 0)
    prefix = [counter for counter in lost if counter < first]
    suffix = [counter for counter in lost if counter > last and counter >= first]
    middle = [counter for counter in lost if first < counter < last]
    parts = [
        f"{name} {runs(part)}" for name, part in (("prefix", prefix), ("middle", middle), ("suffix", suffix)) if part
    ]
    return f"{len(lost)} of {len(stream.acknowledged)} acknowledged on {stream.topic}: {'; '.join(parts)}"


def runs(counters: list[int]) -> str:
    """`1-4, 9, 12-13` instead of every number."""
    parts: list[tuple[int, int]] = []
    for counter in counters:
        if parts and counter == parts[-1][1] + 1:
            parts[-1] = (parts[-1][0], counter)
        else:
            parts.append((counter, counter))
    words = [str(a) if a == b else f"{a}-{b}" for a, b in parts]
    return ", ".join(words[:20]) + (f" and {len(words) - 20} more runs" if len(words) > 20 else "")


def judge_order(receipt: Receipt, stream: Stream | None, topic: str, counters: list[int]) -> list[str]:
    """First deliveries ascend; QoS 2 from a persistent publisher comes once; nothing comes that was never sent."""
    if stream is None:
        return [f"{receipt.subscriber}: {topic} has no publisher"]
    found = []
    invented = [counter for counter in counters if not 1 <= counter <= stream.published]
    if invented:
        found.append(f"{receipt.subscriber}: {topic} never published {runs(sorted(invented))}")
    seen: set[int] = set()
    repeated: list[int] = []
    highest = 0
    for counter in counters:
        if counter in seen:
            repeated.append(counter)
            continue
        seen.add(counter)
        if counter < highest:
            found.append(f"{receipt.subscriber}: ORDER {topic}: {counter} first came after {highest}")
        highest = max(highest, counter)
    if repeated and stream.qos == 2 and stream.is_persistent:
        found.append(f"{receipt.subscriber}: TWICE {topic} at QoS 2: {runs(sorted(repeated))}")
    return found[:5]

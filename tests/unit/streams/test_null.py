"""Without Kafka: nothing is written, all of it can be taken back, and nobody waits for threads."""

from __future__ import annotations

from iothub_services.streams.null import NullReceiver, NullSender, NullWatch
from iothub_services.streams.port import Outgoing


def test_everything_is_taken_back() -> None:
    """So that publishers hear a refusal instead of silence."""
    sender, record = NullSender("kafka.brokers is not set"), Outgoing(None, "t", b"", b"", [], 1)

    sender.start(lambda _answers: None)
    sender.send(record)

    assert sender.give_up(record)
    assert (sender.trouble, sender.close(1)) == ("kafka.brokers is not set", True)


def test_nothing_comes() -> None:
    """And nothing has to be ended."""
    receiver = NullReceiver()

    receiver.start(lambda _stream_id, _page: None)
    receiver.follow([])
    receiver.done(1, {})

    assert (receiver.trouble, receiver.close(1)) == ("", True)


def test_what_is_missing_is_known_without_a_look() -> None:
    watch = NullWatch("there is no Kafka")

    watch.watch(is_needed=True)
    watch.close()

    assert watch.trouble == "there is no Kafka"

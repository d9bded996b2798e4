"""The sender, the receiver and the watch of a hub that has no Kafka: nothing is written, and a publish to a stream is given up in the end.

Knows why. There may still be streams: they were made under other settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from iothub_services.streams.port import OnAnswers, OnPage, Outgoing, Stream


class NullSender:
    """Fulfils `StreamSender`; everything is given up in its time."""

    def __init__(self, trouble: str) -> None:
        self.trouble = trouble

    def start(self, on_answers: OnAnswers) -> None:
        """Nothing will be answered."""

    def send(self, record: Outgoing) -> None:
        """It is not sent."""

    def give_up(self, record: Outgoing) -> bool:
        record.is_given_up = True
        return True

    def close(self, timeout_s: float) -> bool:
        del timeout_s
        return True


class NullReceiver:
    """Fulfils `StreamReceiver`; nothing comes."""

    trouble = ""

    def start(self, on_page: OnPage) -> None:
        """Nothing will come."""

    def follow(self, streams: Sequence[Stream]) -> None:
        """There is nothing to read."""

    def done(self, stream_id: int, upto: Mapping[int, int]) -> None:
        """Nothing came."""

    def close(self, timeout_s: float) -> bool:
        del timeout_s
        return True


class NullWatch:
    """Fulfils `StreamWatch`; it need not look."""

    def __init__(self, trouble: str) -> None:
        self.trouble = trouble
        self.doubt = ""

    def watch(self, *, is_needed: bool) -> None:
        """It is known."""

    def close(self) -> None:
        """Nothing was begun."""

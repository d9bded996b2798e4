"""The judge is judged: each way in which a hub can break its word is seen, and nothing else is."""

from __future__ import annotations

from tests.support.clients.ledger import Ledger, runs


def run_of(qos: int = 1, acknowledged: tuple[int, ...] = (), got: tuple[int, ...] = (), published: int = 10) -> Ledger:
    """A ledger of one persistent publisher and one durable subscriber."""
    ledger = Ledger()
    stream = ledger.stream("load/p", qos, is_persistent=True)
    stream.published = published
    stream.acknowledged.update(acknowledged)
    ledger.receipt("s", ("load/",), is_durable=True).got["load/p"].extend(got)
    return ledger


def test_verdict_is_empty_when_everything_arrived_in_order() -> None:
    """What was never acknowledged may be missing or there."""
    assert not run_of(acknowledged=(1, 2, 3), got=(1, 2, 3, 4)).verdict()
    assert run_of(acknowledged=(1, 2, 3), got=(1, 2, 3, 4)).missing() == 0


def test_verdict_names_prefix_middle_and_suffix_of_a_loss() -> None:
    (line,) = run_of(acknowledged=tuple(range(1, 11)), got=(3, 4, 6, 7)).verdict()

    assert "LOST 6 of 10" in line
    assert "prefix 1-2; middle 5; suffix 8-10" in line


def test_verdict_calls_a_loss_of_everything_a_prefix() -> None:
    (line,) = run_of(acknowledged=(1, 2)).verdict()

    assert "prefix 1-2" in line
    assert "suffix" not in line


def test_verdict_sees_a_first_delivery_out_of_order() -> None:
    (line,) = run_of(got=(1, 3, 2)).verdict()

    assert "ORDER" in line


def test_verdict_allows_qos_1_to_come_again() -> None:
    """A resend after a crash repeats a run; first deliveries still ascend."""
    assert not run_of(got=(1, 2, 3, 2, 3, 4)).verdict()


def test_verdict_sees_qos_2_twice() -> None:
    (line,) = run_of(qos=2, got=(1, 2, 2)).verdict()

    assert "TWICE" in line


def test_verdict_sees_what_was_never_published() -> None:
    (line,) = run_of(got=(1, 11)).verdict()

    assert "never published 11" in line


def test_verdict_keeps_what_was_seen_on_the_way() -> None:
    ledger = run_of()
    ledger.wrong("s", "session present is False")

    assert ledger.verdict() == ["s: session present is False"]


def test_verdict_asks_a_transient_subscriber_for_nothing() -> None:
    ledger = run_of()
    ledger.streams["load/p"].acknowledged.add(1)
    ledger.receipts[0].is_durable = False

    assert not ledger.verdict()


def test_runs_shortens_what_is_together() -> None:
    assert runs([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7-8"

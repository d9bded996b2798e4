"""One count of one hub: what it asks for, and who of those who wait gets what."""

from __future__ import annotations

from twisted.internet.defer import Deferred

from iothub_services.quota.shared.grants import SPARE, Grant, Verdict, Waiting


class Count:
    """What is used."""

    used = 0


def grant(limit: int = 100, *, is_eager: bool = False) -> tuple[Grant, Count]:
    count = Count()
    return Grant("7:connections", limit, lambda: count.used, is_eager=is_eager), count


def wait(made: Grant, count: int, until: float = 10.0) -> list[bool]:
    answers: list[bool] = []
    waiting = Waiting(count, until, Deferred())
    waiting.answer.addCallback(answers.append)
    made.waiting.append(waiting)
    return answers


def test_question_is_what_is_used_needed_and_wished() -> None:
    """Those who wait are needed; the spare is eight and an eighth; whoever closes wishes nothing."""
    made, count = grant()
    count.used = 16
    wait(made, 3)
    question = made.question()
    assert (question.used, question.needed, question.wished) == (16, 19, 19 + SPARE + 2)

    made.close()
    question = made.question()
    assert (question.used, question.wished - question.needed) == (0, 0)


def test_what_is_told_as_not_needed_is_given_up_before_the_answer() -> None:
    """The ledger may have given it to another hub by then."""
    made, count = grant()
    made.apply_verdict(Verdict(20, 0, 0, is_initialising=False), 0.0)
    count.used = 5
    assert made.fits(15)
    made.question()
    assert not made.fits(1)
    made.apply_verdict(Verdict(14, 6, 0, is_initialising=False), 0.0)

    assert made.fits(9)


def test_who_fits_gets_it_and_who_was_not_asked_for_waits() -> None:
    """A no is for those whose need was told."""
    made, _ = grant()
    first, large = wait(made, 1), wait(made, 5)
    made.question()
    late = wait(made, 4)
    must_ask = made.apply_verdict(Verdict(granted=3, others=97, spare=0, is_initialising=False), 0.0)

    assert (first, large, late) == ([True], [False], [])
    assert must_ask


def test_who_may_get_what_others_do_not_use_waits_for_a_while() -> None:
    """And then hears no."""
    made, _ = grant()
    answers = wait(made, 5, until=1.0)
    made.question()
    assert made.apply_verdict(Verdict(3, 97, 2, is_initialising=False), 0.5)
    assert answers == []
    made.question()
    assert not made.apply_verdict(Verdict(3, 97, 2, is_initialising=False), 1.5)

    assert answers == [False]


def test_nobody_is_refused_while_hubs_declare_what_they_have() -> None:
    """However long it takes."""
    made, _ = grant()
    answers = wait(made, 1, until=1.0)
    made.question()

    assert made.apply_verdict(Verdict(0, 0, 0, is_initialising=True), 99.0)
    assert answers == []


def test_eager_grant_asks_in_advance_and_gives_back_what_is_wanted() -> None:
    """All but one unit."""
    made, count = grant(1000, is_eager=True)
    assert made.question().needed == 50
    made.apply_verdict(Verdict(50, 0, 0, is_initialising=False), 0.0)
    assert made.is_running_out is False
    count.used = 30
    assert made.is_running_out
    made.is_wanted = True

    assert made.question().needed == 31
    assert made.question().needed == 80

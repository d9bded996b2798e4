"""What waits for the accounts: order, tries, and when it is given up (`iothub_tenants.broker.until_read`)."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from iothub.base.errors import ConfigError, IotHubError, UnavailableError
from iothub_tenants.broker.until_read import UNREAD_S, UntilRead

RETRY_S = 5.0


class Accounts:
    """Is asked for one item after the other; `fault`: what it answers with."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.fault: Exception | None = None
        self.asked: list[str] = []
        self.used: list[str] = []
        self.given_up: list[tuple[str, str]] = []
        self.emptied = 0
        self.answer: Deferred[None] | None = None
        self.waiting = UntilRead[str](
            self._use, self._give_up, self.clock.seconds, self.clock.callLater, RETRY_S, self._empty
        )

    async def _use(self, item: str) -> None:
        self.asked.append(item)
        if self.answer is not None:
            await self.answer
        if self.fault is not None:
            raise self.fault
        self.used.append(item)

    def _give_up(self, item: str, error: IotHubError) -> None:
        self.given_up.append((item, str(error)))

    def _empty(self) -> None:
        self.emptied += 1


def test_item_is_used_at_once() -> None:
    accounts = Accounts()

    accounts.waiting.add("a")

    assert (accounts.used, len(accounts.waiting), accounts.emptied) == (["a"], 0, 1)


def test_item_that_has_just_failed_is_tried_later() -> None:
    accounts = Accounts()

    accounts.waiting.add("a", has_failed=True)

    assert (accounts.asked, len(accounts.waiting)) == ([], 1)
    accounts.clock.advance(RETRY_S)
    assert accounts.used == ["a"]


def test_items_are_used_in_their_order_one_at_a_time() -> None:
    """What is added meanwhile, too."""
    accounts = Accounts()
    accounts.answer = Deferred()
    for item in ("a", "b"):
        accounts.waiting.add(item)
    assert accounts.asked == ["a"]
    answer, accounts.answer = accounts.answer, None

    answer.callback(None)

    assert (accounts.used, accounts.emptied) == (["a", "b"], 1)


def test_items_wait_with_one_try_for_all_while_the_accounts_cannot_be_read() -> None:
    accounts = Accounts()
    accounts.fault = UnavailableError("away")
    for item in ("a", "b"):
        accounts.waiting.add(item)
    accounts.clock.pump([RETRY_S] * 3)
    assert (accounts.asked, accounts.given_up) == (["a"] * 4, [])

    accounts.fault = None
    accounts.clock.advance(RETRY_S)

    assert (accounts.used, accounts.emptied) == (["a", "b"], 1)


def test_item_is_given_up_when_it_has_waited_for_too_long() -> None:
    """By its own time: the next one waits on."""
    accounts = Accounts()
    accounts.fault = UnavailableError("away")
    accounts.waiting.add("a")
    accounts.clock.advance(UNREAD_S / 2)
    accounts.waiting.add("b")

    accounts.clock.advance(UNREAD_S / 2)

    assert (accounts.given_up, len(accounts.waiting)) == ([("a", "away")], 1)


def test_item_that_no_wait_helps_is_given_up_at_once() -> None:
    accounts = Accounts()
    accounts.fault = ConfigError("wrong")

    accounts.waiting.add("a")

    assert (accounts.given_up, accounts.emptied) == ([("a", "wrong")], 1)


def test_defect_with_one_item_keeps_no_other_one_waiting() -> None:
    """It is reported as a defect; what waits behind it is used a little later."""
    accounts = Accounts()
    accounts.answer = Deferred()
    for item in ("a", "b"):
        accounts.waiting.add(item)
    answer, accounts.answer, accounts.fault = accounts.answer, None, RuntimeError("defect")
    answer.callback(None)
    accounts.fault = None

    accounts.clock.advance(RETRY_S)

    assert (accounts.used, accounts.emptied) == (["b"], 1)


def test_defect_with_the_last_item_leaves_nothing_behind() -> None:
    accounts = Accounts()
    accounts.fault = RuntimeError("defect")
    accounts.waiting.add("a")
    accounts.fault = None

    accounts.waiting.add("b")

    assert (accounts.used, accounts.emptied, accounts.clock.getDelayedCalls()) == (["b"], 2, [])

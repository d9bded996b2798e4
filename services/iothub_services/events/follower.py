"""Follows the session log while other hubs append to it: every event, in order, soon after it is durable.

Knows no event's meaning and no hub: the function that applies events is called on the reactor thread, one page at a time.

Theory: a round reads the clock, asks where the log ends, reads up to there and has the events applied. Then everything that was durable when the
clock was read is known here: that time is `known_at`. A caller that needs what is durable *now* waits for the first round that begins after its
call; one round answers all callers. A page is passed on when the one before has been applied, so nothing piles up.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import BackendError, IotHubError, UnavailableError
from iothub.records.events import Event
from iothub_services.damaged import OnDamage, uncounted
from iothub_services.events.port import EventLog, Offsets, reached
from iothub_services.events.reading import behind, counted_by, readable
from iothub_services.group_thread import CallInReactor

log = logging.get(__name__)

PERIOD_S = 0.1  # between two rounds while other hubs run
ALONE_S = 1.0  # and while none does
RETRY_S = 0.5
PAGE = 500  # events that are applied in one call of the reactor
_WAITING = 10_000  # questions at a time
FAILING = "follower_failing"  # the alarm; not raised while no other hub runs, for then the log has only our own events

Apply = Callable[[list[Event], Offsets], Coroutine[Deferred[Any], Any, None]]
"""Apply a page of the log; with it everything up to this place is applied."""


class Follower:
    """One thread that reads; `catch_up` and all callbacks run on the reactor thread.

    Invariants: `_after` is what was read and applied; `known_at` never goes back.
    """

    def __init__(
        self,
        events: EventLog,
        after: Offsets,
        apply: Apply,
        call_in_reactor: CallInReactor,
        clock: Clock,
        *,
        on_known: Callable[[float], None],
        on_alarm: Callable[[str, str], None],
        on_damage: OnDamage = uncounted,
    ) -> None:
        self._events = events
        self._after = after
        self._apply = apply
        self._call_in_reactor = call_in_reactor
        self._clock = clock
        self._on_known = on_known
        self._on_alarm = on_alarm
        self._on_damaged = counted_by(on_damage)  # called in the thread
        self._wakeup = threading.Condition()
        self._is_asked = False
        self._is_closing = False
        self._is_failing = False
        self._waiting: list[tuple[float, Deferred[None]]] = []
        self.period_s = ALONE_S
        self.known_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="iothub-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End the thread, and close the log that it reads. Waiting callers get an error."""
        with self._wakeup:
            self._is_closing = True
            self._wakeup.notify_all()
        self._call_in_reactor(self._give_up)  # waiting callers are on the reactor thread, `close` is not
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def set_period(self, seconds: float) -> None:
        """Change how long the thread waits between two rounds, from the next wait on."""
        self.period_s = seconds

    def hurry(self) -> None:
        """Begin a round now."""
        with self._wakeup:
            self._is_asked = True
            self._wakeup.notify_all()

    def catch_up(self) -> Deferred[None]:
        """Fire when everything is applied that is durable now. Fails with UnavailableError when too many wait."""
        answer: Deferred[None] = Deferred()
        if self._is_closing or len(self._waiting) >= _WAITING:
            answer.errback(UnavailableError("the session log cannot be followed now"))
            return answer
        self._waiting.append((self._clock.monotonic(), answer))
        self.hurry()
        return answer

    # --- in the thread

    def _run(self) -> None:
        pause_s = 0.0
        while self._pause(pause_s):
            pause_s = self.period_s if self.round() else RETRY_S
        self._events.close()

    def _pause(self, seconds: float) -> bool:
        """Wait until the next round is due or a caller wants one; False: the follower is closed."""
        with self._wakeup:
            if seconds and not self._is_failing:
                self._wakeup.wait_for(lambda: self._is_asked or self._is_closing, seconds)
            elif seconds:
                self._wakeup.wait_for(lambda: self._is_closing, seconds)
            self._is_asked = False
            return not self._is_closing

    def round(self) -> bool:
        """Read up to the log's end; False: it could not be read, and the next round goes on from where this one came."""
        began = self._clock.monotonic()
        try:
            self._read_upto(self._events.end())
        except IotHubError as error:
            self._fails(str(error))
            return False
        except Exception as error:  # the service loop's edge: a defect with one page must not end the thread
            log.error("defect while following the session log", exc_info=error)
            self._fails(f"defect: {type(error).__name__}")
            return False
        if not self._is_closing:
            self._fails("")
            self._call_in_reactor(partial(self._knows, began))
        return True

    def _read_upto(self, end: Offsets) -> None:
        while not self._is_closing and any(reached(self._after, at) < offset for at, offset in enumerate(end)):
            page = self._events.read(self._after, PAGE)
            if not page:
                return
            after = behind(self._after, page)
            self._hand_over([logged.event for logged in readable(page, self._on_damaged)], after)
            self._after = after

    def _hand_over(self, page: list[Event], after: Offsets) -> None:
        """Have a page applied on the reactor thread, and wait until it is. Raises what kept it from being applied."""
        is_done = threading.Event()
        failures: list[BaseException] = []

        def failed(failure: object) -> None:
            failures.append(getattr(failure, "value", RuntimeError(str(failure))))

        def apply() -> None:
            done: Deferred[None] = Deferred.fromCoroutine(self._apply(page, after))
            done.addErrback(failed).addBoth(lambda _: is_done.set())

        self._call_in_reactor(apply)
        while not is_done.wait(PERIOD_S):
            if self._is_closing:
                raise BackendError("the hub ends", retryable=True)
        if failures:
            raise failures[0]

    def _fails(self, text: str) -> None:
        """Raise the alarm, or clear it: an empty text means that nothing fails any more."""
        was_failing, self._is_failing = self._is_failing, bool(text)
        if text:
            text = f"{text}; publishers wait here as soon as a client of their tenant subscribes at another hub"
        if text or was_failing:
            self._call_in_reactor(partial(self._on_alarm, FAILING, text))

    # --- on the reactor thread

    def _give_up(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, answer in waiting:
            answer.errback(UnavailableError("the hub ends"))

    def _knows(self, began: float) -> None:
        self.known_at = began
        self._on_known(began)
        ready = [answer for asked_at, answer in self._waiting if asked_at <= began]
        self._waiting = [entry for entry in self._waiting if entry[0] > began]
        for answer in ready:
            if not answer.called:
                answer.callback(None)
        if self._waiting:
            self.hurry()

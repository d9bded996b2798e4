"""Until when may be routed: asked with each batch of acknowledgements."""

from __future__ import annotations

from iothub.peers.route_term import RouteTerm


def test_nobody_is_asked_before_the_time_that_is_known() -> None:
    now, answers, asked = [10.0], [True, False], []
    term = RouteTerm(lambda: now[0], lambda: bool(asked.append(now[0]) or answers.pop()))
    term.until = 10.5

    told = [term()]
    now[0] = 10.5
    told += [term(), term()]

    assert (told, asked) == ([True, False, True], [10.5, 10.5])


def test_who_has_not_looked_yet_asks() -> None:
    assert not RouteTerm(lambda: 0.0, lambda: False)()

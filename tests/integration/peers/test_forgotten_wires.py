"""The compiled socket of a link that has ended is referred to by nobody: the garbage collector does not look at sockets."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

import pytest

from tests.integration.peers.conftest import Authority, Peer

pytestmark = [
    pytest.mark.parametrize("twin", ["compiled"], indirect=True),
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning"
    ),  # of what other tests left to the collector
]

_OWN = 3  # the list of the test, the name of its loop, the argument of `getrefcount`


@pytest.mark.parametrize("is_tls", [False, True], ids=["tcp", "tls"])
def test_socket_of_a_link_is_forgotten_when_it_has_ended(
    peer: Callable[..., Peer], authority: Authority, is_tls: bool
) -> None:
    """The one that was accepted, and the one that was dialled: its acceptor knows it, as it is one dial's."""
    one, two = (peer(authority.credentials(node) if is_tls else None) for node in (1, 2))
    one.dial(two.listen())
    one.until(lambda: one.dialled and two.accepted and two.accepted[0].data == b"hello")
    channels = [each.wire._channel for each in (*one.dialled, *two.accepted)]

    one.thread.call(one.dialled[0].wire.close)
    one.until(lambda: one.dialled[0].reasons and two.accepted[0].reasons)
    for each in (one, two):
        each.thread.call(each.transports.tick)  # a socket that has just written is looked at again then
        each.thread.call(each.transports.close)
        each.dialled.clear()
        each.accepted.clear()
    gc.collect()

    assert [sys.getrefcount(each) - _OWN for each in channels] == [0, 0]

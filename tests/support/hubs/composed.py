"""Hubs that were composed and never started."""

from __future__ import annotations

from twisted.internet.epollreactor import EPollReactor

from iothub.hub.parts import Parts


def close_parts(made: Parts, reactor: EPollReactor) -> None:
    """Give back what `compose` has opened, and the reactor's descriptors."""
    made.writers.writer.close()
    made.writers.journal_thread.close()
    for store in (made.stores.states, made.stores.usage, made.stores.accounts):
        store.close()
    reactor.removeAll()  # type: ignore[no-untyped-call]
    reactor._poller.close()

"""A hub without MQTT as a process of its own: `echo_hub.py TWIN DESCRIPTORS` prints its port and echoes until it is killed."""

from __future__ import annotations

import resource
import sys

from twisted.internet.epollreactor import EPollReactor

from iothub.base.clock import SystemClock
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listener_info import listener_info
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.testing.echo_plane import EchoPlane


def main(twin: str, descriptors: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    reactor = EPollReactor()
    plane, clock = EchoPlane(), SystemClock()
    transports = make_transports(twin, plane, clock, reactor)
    listeners = Listeners(
        [listener_info("tcp")], plane, clock, transports, reactor, Descriptors(UNLIMITED), lambda *_: None
    )
    listeners.start()
    sys.stdout.write(f"{listeners.addresses()['tcp'][1]}\n")
    sys.stdout.flush()
    reactor.run(installSignalHandlers=False)


main(sys.argv[1], int(sys.argv[2]))

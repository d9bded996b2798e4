#!/usr/bin/env python3
"""A tiny MQTT 3.1.1 broker (QoS 0 and 1) that misbehaves on purpose, to prove that the harness notices.

faulty.py PORT FAULT [N]       FAULT happens to one delivery in N (1000), or once after N deliveries
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys

PORT, FAULT = int(sys.argv[1]), sys.argv[2]
N = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
ONCE = {"die", "segfault", "disconnect", "hang", "traceback", "child", "late-duplicate"}
EVERY = {
    "drop",
    "duplicate",
    "redeliver",
    "reorder",
    "corrupt",
    "misroute",
    "downgrade",
    "topic",
    "retain",
    "dup-flag",
    "foreign",
    "no-ack",
    "ack-order",
}
assert FAULT in ONCE | EVERY | {"none", "not-listening", "truncate-subscriptions"}, FAULT


class Client:
    def __init__(self, sock: socket.socket):
        self.sock, self.inp, self.out, self.pid, self.held = sock, b"", bytearray(), 0, None


sel = selectors.DefaultSelector()
subscribers: dict[str, list[Client]] = {}
everything: list[Client] = []
count = 0
late: list = []


def frame(first: int, body: bytes) -> bytes:
    n, size = len(body), b""
    while True:
        size += bytes([n % 128 | (128 if n > 127 else 0)])
        n //= 128
        if not n:
            return bytes([first]) + size + body


def deliver(to: Client, topic: str, payload: bytes, qos: int, flags: int = 0, new_id: bool = True) -> None:
    name, ident = topic.encode(), b""
    if qos:
        if new_id:
            to.pid = to.pid % 65535 + 1
        ident = to.pid.to_bytes(2, "big")
    to.out += frame(0x30 | qos << 1 | flags, len(name).to_bytes(2, "big") + name + ident + payload)


def once() -> None:
    """Something ends in the middle of the run."""
    if FAULT == "die":
        os._exit(0)
    if FAULT == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "disconnect":
        gone(next(iter(subscribers.values()))[0])
    if FAULT == "hang":
        signal.pause()
    if FAULT == "traceback":
        print("Traceback (most recent call last):\n  something nobody caught", file=sys.stderr, flush=True)
    if FAULT == "child":
        os.kill(CHILD, signal.SIGKILL)


def route(topic: str, payload: bytes, qos: int) -> None:
    global count
    for to in subscribers.get(topic, []) + everything:
        count += 1
        hit = count % N == 0
        if FAULT in ONCE and count == N:
            once()
        if not hit or FAULT not in EVERY:
            deliver(to, topic, payload, qos)
            if to.held:
                deliver(to, *to.held)
                to.held = None
        elif FAULT == "duplicate":
            deliver(to, topic, payload, qos)
            deliver(to, topic, payload, qos)
        elif FAULT == "redeliver":  # allowed at QoS 1: the same packet again, with DUP
            deliver(to, topic, payload, qos)
            deliver(to, topic, payload, qos, 8, new_id=False)
        elif FAULT == "reorder":
            to.held = (topic, payload, qos)
        elif FAULT == "corrupt":
            deliver(to, topic, payload[:-1] + bytes([payload[-1] ^ 1]), qos)
        elif FAULT == "misroute":
            deliver(to, topic, payload, qos)
            other = next(c for t, cs in subscribers.items() if t != topic for c in cs)
            deliver(other, topic, payload, qos)
        elif FAULT == "downgrade":
            deliver(to, topic, payload, 0)
        elif FAULT == "topic":
            deliver(to, "tenant/" + topic, payload, qos)
        elif FAULT == "retain":
            deliver(to, topic, payload, qos, 1)
        elif FAULT == "dup-flag":
            deliver(to, topic, payload, 0, 8)
        elif FAULT == "foreign":
            deliver(to, topic, payload, qos)
            deliver(to, topic, b"\0" * len(payload), qos)
        elif FAULT in ("no-ack", "ack-order"):
            deliver(to, topic, payload, qos)


def packet(c: Client, head: int, body: bytes) -> None:
    kind = head >> 4
    if kind == 1:
        c.out += b"\x20\x02\0\0"
    elif kind == 8:
        n = int.from_bytes(body[2:4], "big")
        topic, qos = body[4 : 4 + n].decode(), body[4 + n]
        if topic.endswith("#"):
            everything.append(c)
        else:
            subscribers.setdefault(topic, []).append(c)
        c.out += frame(0x90, body[:2] + bytes([0 if FAULT == "truncate-subscriptions" else qos]))
    elif kind == 3:
        n, qos = int.from_bytes(body[:2], "big"), head >> 1 & 3
        topic, rest = body[2 : 2 + n].decode(), body[2 + n :]
        if qos:
            ack = b"\x40\x02" + rest[:2]
            if not (FAULT == "no-ack" and count % N == N - 1):
                if FAULT == "ack-order" and count % N == N - 1 and c.held is None:
                    c.held = ack  # comes after the next one
                else:
                    c.out += ack
                    if FAULT == "ack-order" and c.held:
                        c.out += c.held
                        c.held = None
            rest = rest[2:]
        route(topic, rest, qos)
    elif kind == 12:
        c.out += b"\xd0\0"
    elif kind == 14:
        raise EOFError


def gone(c: Client) -> None:
    for group in [*subscribers.values(), everything]:
        if c in group:
            group.remove(c)
    with contextlib.suppress(KeyError, ValueError):
        sel.unregister(c.sock)
    c.sock.close()


def readable(c: Client) -> None:
    try:
        data = c.sock.recv(65536)
        if not data:
            raise EOFError
        c.inp += data
        while len(c.inp) >= 2:
            size, shift, at = 0, 0, 1
            while at < len(c.inp):
                size |= (c.inp[at] & 127) << shift
                shift += 7
                at += 1
                if c.inp[at - 1] < 128:
                    break
            else:
                return
            if len(c.inp) < at + size:
                return
            head, body, c.inp = c.inp[0], c.inp[at : at + size], c.inp[at + size :]
            packet(c, head, body)
    except (EOFError, ConnectionError):
        gone(c)


def flush() -> None:
    for key in list(sel.get_map().values()):
        c = key.data
        if c and c.out:
            try:
                del c.out[: c.sock.send(c.out)]
            except BlockingIOError:
                pass
            except OSError:
                gone(c)


CHILD = os.fork() if FAULT == "child" else -1
if CHILD == 0:
    signal.pause()
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(("127.0.0.1", PORT if FAULT != "not-listening" else 0))
server.listen(1000)
sel.register(server, selectors.EVENT_READ, None)
while True:
    for key, _ in sel.select(0.002 if any(k.data and k.data.out for k in sel.get_map().values()) else 1):
        if key.data is None:
            sock, _ = server.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sel.register(sock, selectors.EVENT_READ, Client(sock))
        else:
            readable(key.data)
    flush()

"""Names of reasons: each has Reason Codes that the packets may have. Typed from MQTT 5.0, not from the code."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason

# §3.14.2.1, those that a server may send
OF_DISCONNECT = {0x00, *range(0x80, 0x84), 0x87, 0x89, 0x8B, *range(0x8D, 0x91), *range(0x93, 0xA3)}
OF_THE_CLIENT = {Reason.CLIENT_WITH_WILL}


@pytest.mark.parametrize("reason", [each for each in Reason if each not in OF_THE_CLIENT], ids=lambda each: each.word)
def test_disconnect_has_a_code_that_disconnect_may_have(reason: Reason) -> None:
    assert reason.disconnect in OF_DISCONNECT


def test_client_that_is_banned_is_disconnected_by_an_administrator() -> None:
    assert (Reason.BANNED.code, Reason.BANNED.disconnect) == (0x8A, 0x98)

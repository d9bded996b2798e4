"""Records in a cache that others can write: ours come back whole, others' never."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iothub_services.auth.change_watermark import ChangePosition
from iothub_services.auth.port import Ban, DeviceRecord, Rule, TenantRecord, TokenIssuer, TokenKey
from iothub_services.auth.signed_entries import FORM, EntrySigner, ForgedError, SignedEntry

PEPPER = b"p" * 32
SIGNER = EntrySigner(PEPPER)
POSITION = ChangePosition(7, 1_700_000_000_000)
DEVICE = DeviceRecord("dev1", "h1$salt$mac", groups=("sensors",), id=3)

_TEXT = st.text(max_size=12)  # without surrogates, as all of Hypothesis
_OF = {str: _TEXT, float: st.floats(allow_nan=False, allow_infinity=False)}


def every(kind: type[Any], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build with a value for every field, whatever its default: a field that gets lost on the way is found out."""
    return st.builds(kind, **({each.name: ... for each in fields(kind)} | others))


_RULES = st.lists(st.builds(Rule, subject=_TEXT, filter=_TEXT), max_size=3).map(tuple)
_TEXTS = st.lists(_TEXT, max_size=3).map(tuple)
_KEYS = st.lists(st.builds(TokenKey, _TEXT, _TEXT), max_size=2).map(tuple)
_ISSUERS = st.lists(
    every(TokenIssuer, name=_TEXT, keys=_KEYS, issuer=_TEXT, audience=_TEXT, leeway_s=_OF[float]), max_size=2
).map(tuple)
_BANS = st.lists(every(Ban, subject=_TEXT, reason=_TEXT, until=_OF[float]), max_size=2).map(tuple)
DEVICES = every(
    DeviceRecord, name=_TEXT, credential=_TEXT, groups=_TEXTS, rules=_RULES, limits=_TEXT, id=st.integers(0, 1 << 62)
)
TENANTS = every(
    TenantRecord,
    name=_TEXT,
    plan=_TEXT,
    plan_limits=_TEXT,
    limits=_TEXT,
    rules=_RULES,
    bans=_BANS,
    allowed_networks=_TEXTS,
    denied_networks=_TEXTS,
    token_issuers=_ISSUERS,
)


@given(DEVICES)
def test_device_comes_back_as_it_was(device: DeviceRecord) -> None:
    """Every field of it, whatever is added to the record some day."""
    opened = SIGNER.open_device(b"here", SIGNER.sign_device(b"here", SignedEntry(POSITION, device)))

    assert opened == SignedEntry(POSITION, device)


@given(TENANTS)
def test_tenant_comes_back_as_it_was(tenant: TenantRecord) -> None:
    opened = SIGNER.open_tenant(b"here", SIGNER.sign_tenant(b"here", SignedEntry(POSITION, tenant)))

    assert opened == SignedEntry(POSITION, tenant)


def test_absence_comes_back_as_absence() -> None:
    assert SIGNER.open_tenant(b"t", SIGNER.sign_tenant(b"t", SignedEntry(POSITION, None))).record is None
    assert SIGNER.open_device(b"d", SIGNER.sign_device(b"d", SignedEntry(POSITION, None))).record is None


def test_every_changed_octet_is_noticed() -> None:
    """No credential, no rule and no date can be written by who has not the pepper."""
    octets = SIGNER.sign_device(b"here", SignedEntry(POSITION, DEVICE))

    for place in range(len(octets)):
        forged = octets[:place] + bytes([octets[place] ^ 1]) + octets[place + 1 :]
        with pytest.raises(ForgedError):
            SIGNER.open_device(b"here", forged)


@pytest.mark.parametrize("octets", [b"", b"x" * 31, b"x" * 32, b"x" * 400], ids=["none", "short", "bare", "long"])
def test_octets_that_are_no_record_are_forged(octets: bytes) -> None:
    with pytest.raises(ForgedError):
        SIGNER.open_device(b"here", octets)


def test_record_of_another_place_is_forged() -> None:
    """One device's record under another one's key would let the one in with the other's secret."""
    octets = SIGNER.sign_device(b"d:1:dev1", SignedEntry(POSITION, DEVICE))

    with pytest.raises(ForgedError):
        SIGNER.open_device(b"d:1:dev2", octets)


def test_another_pepper_is_another_signature() -> None:
    octets = EntrySigner(b"q" * 32).sign_device(b"here", SignedEntry(POSITION, DEVICE))

    with pytest.raises(ForgedError):
        SIGNER.open_device(b"here", octets)


def test_form_is_of_this_programs_fields() -> None:
    """Eight hexadecimal digits, which stand in the key."""
    assert len(FORM) == 8
    assert int(FORM, 16) >= 0

"""Records in a cache that others can write: ours come back whole, others' never."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iothub_services.auth.change_watermark import AsOf
from iothub_services.auth.port import Ban, DeviceRecord, Rule, TenantRecord, TokenIssuer, TokenKey
from iothub_services.auth.signed_entries import FORM, ForgedError, Seal, Sealed

PEPPER = b"p" * 32
SEAL = Seal(PEPPER)
AS_OF = AsOf(7, 1_700_000_000_000)
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
    opened = SEAL.open_device(b"here", SEAL.device(b"here", Sealed(AS_OF, device)))

    assert opened == Sealed(AS_OF, device)


@given(TENANTS)
def test_tenant_comes_back_as_it_was(tenant: TenantRecord) -> None:
    opened = SEAL.open_tenant(b"here", SEAL.tenant(b"here", Sealed(AS_OF, tenant)))

    assert opened == Sealed(AS_OF, tenant)


def test_absence_comes_back_as_absence() -> None:
    assert SEAL.open_tenant(b"t", SEAL.tenant(b"t", Sealed(AS_OF, None))).record is None
    assert SEAL.open_device(b"d", SEAL.device(b"d", Sealed(AS_OF, None))).record is None


def test_every_changed_octet_is_noticed() -> None:
    """No credential, no rule and no date can be written by who has not the pepper."""
    octets = SEAL.device(b"here", Sealed(AS_OF, DEVICE))

    for place in range(len(octets)):
        forged = octets[:place] + bytes([octets[place] ^ 1]) + octets[place + 1 :]
        with pytest.raises(ForgedError):
            SEAL.open_device(b"here", forged)


@pytest.mark.parametrize("octets", [b"", b"x" * 31, b"x" * 32, b"x" * 400], ids=["none", "short", "bare", "long"])
def test_octets_that_are_no_record_are_forged(octets: bytes) -> None:
    with pytest.raises(ForgedError):
        SEAL.open_device(b"here", octets)


def test_record_of_another_place_is_forged() -> None:
    """One device's record under another one's key would let the one in with the other's secret."""
    octets = SEAL.device(b"d:1:dev1", Sealed(AS_OF, DEVICE))

    with pytest.raises(ForgedError):
        SEAL.open_device(b"d:1:dev2", octets)


def test_another_pepper_is_another_seal() -> None:
    octets = Seal(b"q" * 32).device(b"here", Sealed(AS_OF, DEVICE))

    with pytest.raises(ForgedError):
        SEAL.open_device(b"here", octets)


def test_form_is_of_this_programs_fields() -> None:
    """Eight hexadecimal digits, which stand in the key."""
    assert len(FORM) == 8
    assert int(FORM, 16) >= 0

"""The examples of docs/guide/hooks.md, run as they are printed there."""

from __future__ import annotations

import hmac
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from iothub import hooks
from iothub.hooks import Attempt, Challenge, Client, Hooks, Proof, Publication, Step

GUIDE = Path(__file__).parents[3] / "docs/guide/hooks.md"


@pytest.fixture
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    text = GUIDE.read_text(encoding="utf-8")
    project = tomllib.loads(_block(text, "toml"))
    (tmp_path / "house_rules.py").write_text(_block(text, "python"), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = project["project"]["entry-points"][hooks.GROUP]
    yield hooks.load([EntryPoint(name, value, hooks.GROUP) for name, value in points.items()])
    sys.modules.pop("house_rules", None)


KEY = bytes(range(32))


@pytest.fixture
def challenging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hooks]:
    (tmp_path / "key_proof.py").write_text(_block(GUIDE.read_text(encoding="utf-8"), "python", 1), encoding="utf-8")
    (tmp_path / "keys.json").write_text(json.dumps({"acme/dev1": KEY.hex()}))
    monkeypatch.setenv("DEVICE_KEYS", str(tmp_path / "keys.json"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield hooks.load([EntryPoint("authenticate", "key_proof:authenticate", hooks.GROUP)])
    sys.modules.pop("key_proof", None)


def _block(text: str, language: str, number: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)[number])


def step(loaded: Hooks, attempt: Attempt) -> Step:
    """Have the plug-in answer; it waits for nothing."""
    assert loaded.authenticate is not None
    steps = loaded.authenticate(attempt).__await__()
    with pytest.raises(StopIteration) as over:
        next(steps)
    return over.value.value  # type: ignore[no-any-return]


def begun(loaded: Hooks, device: str = "dev1") -> tuple[Attempt, bytes]:
    """Send the first step; the attempt and both nonces come back."""
    attempt = Attempt("acme", device, "c1", None, "192.0.2.7:1", "tcp", method="HMAC-SHA256", data=b"n" * 16)
    challenge = step(loaded, attempt)
    assert isinstance(challenge, Challenge)
    return attempt, b"n" * 16 + challenge.data


def test_example_lets_guests_only_read(loaded: Hooks) -> None:
    assert loaded.authorise is not None
    guest, device = Client("acme", "guest-1", "c1"), Client("acme", "dev1", "c2")

    assert loaded.authorise(guest, "publish", "a") is False
    assert loaded.authorise(guest, "receive", "a") is None
    assert loaded.authorise(device, "publish", "a") is None


def test_example_blanks_card_numbers(loaded: Hooks) -> None:
    assert loaded.publish is not None
    client = Client("acme", "dev1", "c1")

    blanked = loaded.publish(client, Publication("pay", b"4111 1111 1111 1111", 1))
    other = loaded.publish(client, Publication("pay", b"21.5", 1))

    assert blanked == Publication("pay", b"****", 1)
    assert other == Publication("pay", b"21.5", 1)


def test_example_leaves_the_other_places_empty(loaded: Hooks) -> None:
    assert (loaded.authenticate, loaded.deliver, loaded.lifecycle) == (None, None, None)


def test_example_of_a_challenge_proves_device_and_hub(challenging: Hooks) -> None:
    """[MQTT-4.12.0-2] and once more, with an empty memory, when the device re-authenticates."""
    for _ in range(2):
        attempt, nonces = begun(challenging)
        answer = hmac.digest(KEY, b"device" + nonces, "sha256")

        assert step(challenging, replace(attempt, data=answer)) == Proof(hmac.digest(KEY, b"hub" + nonces, "sha256"))


@pytest.mark.parametrize(("device", "key"), [("dev1", b"other" * 6), ("stranger", KEY)])
def test_example_of_a_challenge_refuses_a_wrong_key(challenging: Hooks, device: str, key: bytes) -> None:
    """A stranger is challenged alike, so nobody learns which devices there are."""
    attempt, nonces = begun(challenging, device)

    assert step(challenging, replace(attempt, data=hmac.digest(key, b"device" + nonces, "sha256"))) is False


def test_example_of_a_challenge_leaves_the_rest_to_the_hub(challenging: Hooks) -> None:
    """A first step without a nonce is refused."""
    attempt = Attempt("acme", "dev1", "c1", b"secret", "192.0.2.7:1", "tcp")

    assert step(challenging, attempt) is None
    assert step(challenging, replace(attempt, method="HMAC-SHA256")) is False

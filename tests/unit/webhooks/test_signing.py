"""Signatures as the Standard Webhooks specification has them."""

from __future__ import annotations

import base64
import hashlib
import hmac

from iothub_services.webhooks import signing


def test_a_receiver_checks_the_signature_with_the_shown_secret() -> None:
    secret = signing.secret_of(b"pepper", signing.new_salt())
    text = signing.shown(secret)

    headers = signing.headers([secret], "0-5", 1_700_000_000, b'{"v":1}')

    key = base64.b64decode(text.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, b'0-5.1700000000.{"v":1}', hashlib.sha256).digest()).decode()
    assert headers == {
        "webhook-id": "0-5",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{expected}",
    }


def test_known_answer() -> None:
    """The example of the specification's libraries."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    found = signing.headers([secret], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert found["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_replaced_secret_signs_beside_the_new_one() -> None:
    one, two = (signing.secret_of(b"pepper", salt) for salt in ("a", "b"))

    found = signing.headers([one, two], "x", 1, b"")["webhook-signature"].split(" ")

    assert found == [signing.headers([each], "x", 1, b"")["webhook-signature"] for each in (one, two)]


def test_secrets_differ_by_salt_and_by_pepper() -> None:
    made = {signing.secret_of(pepper, salt) for pepper in (b"p", b"q") for salt in ("a", "b")}

    assert len(made) == 4

"""The records of the port that decide something."""

from __future__ import annotations

import pytest

from iothub_services.auth.port import ClientIdPolicy


@pytest.mark.parametrize(
    ("policy", "client_id", "is_permitted"),
    [
        (ClientIdPolicy.OWNER, "anything/at+all#", True),
        (ClientIdPolicy.EQUAL, "dev1", True),
        (ClientIdPolicy.EQUAL, "dev1/2", False),
        (ClientIdPolicy.PREFIX, "dev1", True),
        (ClientIdPolicy.PREFIX, "dev1/2", True),
        (ClientIdPolicy.PREFIX, "dev12", False),
        (ClientIdPolicy.PREFIX, "dev1-2", False),
        (ClientIdPolicy.PREFIX, "dev", False),
        (ClientIdPolicy.PREFIX, "", False),
        (ClientIdPolicy.PREFIX, "other/dev1", False),
    ],
)
def test_client_id_policy_keeps_devices_apart(policy: ClientIdPolicy, client_id: str, is_permitted: bool) -> None:
    """With `prefix`, no device can take a Client Identifier that is, or begins like, another device's name."""
    assert policy.permits("dev1", client_id) is is_permitted

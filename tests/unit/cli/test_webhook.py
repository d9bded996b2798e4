"""`iothub webhook`: for a tenant or for the platform, the secret once, and what each mistake is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.in_process.command import Cli

URL = "https://hooks.example.com/x"


def record(acme: Cli, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = acme("-o", "json", "webhook", *words).json
    return found


@pytest.mark.parametrize("tenant", [(), ("--tenant", "acme")])
def test_webhook_from_creation_to_deletion(acme: Cli, tenant: tuple[str, ...]) -> None:
    made = record(acme, "create", "pager", URL, *tenant, "--event", "client/*", "--event", "quota/exceeded")
    assert made["secret"].startswith("whsec_")

    acme("webhook", "update", "pager", *tenant, "--disable")
    shown = record(acme, "show", "pager", *tenant)
    assert (shown["events"], shown["is_enabled"], shown["attempts"]) == (["client/*", "quota/exceeded"], False, [])
    assert "secret" not in shown
    assert record(acme, "rotate", "pager", *tenant)["secret"] != made["secret"]
    assert [row["name"] for row in acme.rows("webhook", "list", *tenant)] == ["pager"]
    acme("webhook", "delete", "pager", *tenant, "--yes")
    assert acme.rows("webhook", "list", *tenant) == []


def test_the_secret_alone_is_on_standard_output(acme: Cli) -> None:
    """So that a script can keep it."""
    shown = acme("webhook", "create", "pager", URL)

    assert shown.out.strip().startswith("whsec_")
    assert "created webhook pager" in shown.err


def test_each_mistake_says_what_is_expected(acme: Cli) -> None:
    assert "--enable" in acme("webhook", "update", "pager", code=2).err
    assert "https://" in acme("webhook", "create", "pager", "ftp://x", code=2).err
    assert "client/connected" in acme("webhook", "create", "pager", URL, "--event", "x", code=2).err
    assert "webhook list" in acme("webhook", "show", "pager", code=3).err
    assert "nobody" in acme("webhook", "list", "--tenant", "nobody", code=3).err


def test_a_test_that_is_not_delivered_says_why(acme: Cli) -> None:
    acme("webhook", "create", "pager", "http://localhost:1/")

    assert "not public" in acme("webhook", "test", "pager", code=7).err


def test_private_address_is_refused_unless_the_settings_allow_its_network(acme: Cli) -> None:
    """With the reason and the setting; a name is judged when it is looked up."""
    acme("webhook", "create", "pager", URL)
    for words in (("create", "inner", "http://10.0.0.1/x"), ("update", "pager", "--url", "http://10.0.0.1/x")):
        assert acme("webhook", *words, code=2).err == (
            "iothub: the URL cannot be used: the address 10.0.0.1 is not public; expected a public one, "
            "or one in a network that the operator has put into the setting webhooks.allow_networks\n"
        )

    with (acme.data_dir / "iothub.toml").open("a") as file:
        file.write('\n[webhooks]\nallow_networks = ["10.0.0.0/8"]\n')
    acme("webhook", "create", "inner", "http://10.0.0.1/x")
    acme("webhook", "update", "pager", "--url", "http://10.0.0.2/x")

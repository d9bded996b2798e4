"""Secrets that a page has made many of (`iothub.dashboard.secret_files`)."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from iothub.dashboard import secret_files

SECRETS = [{"name": "d1", "username": "acme/d1", "secret": "-a"}, {"name": "d2", "username": "acme/d2", "secret": "=b"}]


def test_secrets_of_a_page_that_is_closed_are_named_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are lost; one by one they can be made anew."""
    said = Mock()
    monkeypatch.setattr(secret_files, "log", said)

    assert not secret_files.is_left(Mock(is_deleted=False), SECRETS)
    assert secret_files.is_left(Mock(is_deleted=True), [])
    assert said.warning.call_count == 0
    assert secret_files.is_left(Mock(is_deleted=True), SECRETS)

    assert "were shown to nobody" in said.warning.call_args.args[0]
    assert said.warning.call_args.kwargs == {"count": 2, "first": "acme/d1, acme/d2"}


def test_secrets_in_a_file_are_what_they_are() -> None:
    """No apostrophe before what a spreadsheet takes for a formula: a device would be refused with it."""
    assert secret_files.as_csv(SECRETS) == "name,username,secret\nd1,acme/d1,-a\nd2,acme/d2,=b\n"

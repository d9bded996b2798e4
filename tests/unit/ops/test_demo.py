"""`make run`: what it prints about the REST API."""

from __future__ import annotations

from ops.demo import api_welcome

API = {"address": "http://127.0.0.1:8081"}


def test_password_is_printed_by_the_run_that_made_it() -> None:
    assert "password p4ss\n" in api_welcome(API, "p4ss")
    assert "shown this once" in api_welcome(API, "p4ss")
    assert "admin user set-password admin" in api_welcome(API, "")


def test_api_that_does_not_run_says_why() -> None:
    assert api_welcome({"cause": "its port is in use"}, "") == "\nThe REST API does not run: its port is in use\n"
    assert api_welcome({}, "") == ""

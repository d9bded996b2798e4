"""`queues.choices` for a tenant that does not exist: the log of a start says so by name."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.hubs.hub import Hub

TEXT = "queues.choices names tenants that do not exist"


def test_start_names_tenants_that_do_not_exist(make_hub: Callable[..., Hub]) -> None:
    """Not those that do."""
    hub = make_hub()
    hub.settings["queues.choices"] = '[{driver = "sqlite", tenants = ["acme", "acne"]}]'
    hub.start()

    (line,) = [json.loads(line) for line in hub.log.splitlines() if TEXT in line]
    assert (line["level"], line["tenants"]) == ("warning", ["acne"])

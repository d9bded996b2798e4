"""`python -m iothub.cli`: the command `iothub` for whoever has an interpreter and not the script, such as a hub that starts the REST API."""

from __future__ import annotations

from iothub.cli.entry import main

main()

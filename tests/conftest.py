"""Every test: hubs start no REST API beside themselves unless the test says so; it would take a second and a port."""

from __future__ import annotations

import os

os.environ.setdefault("IOTHUB_ADMIN__ENABLED", "off")

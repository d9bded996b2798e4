"""Without the compiled poller (no C compiler) there is nothing to test of it: the plain twin runs."""

from __future__ import annotations

from iothub.net.backend import is_compiled_built

collect_ignore = [] if is_compiled_built() else ["test_poller.py"]

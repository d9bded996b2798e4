"""What is known of a process before its log: since when it runs, and from which level on it writes lines until `log.configure` says more.

Apart from `log`, which takes a moment to load: a help text has nothing to log.
"""

from __future__ import annotations

import time

is_command = (
    False  # a command writes errors alone, defects of ours: it says by itself what fails, once and with what to do
)
is_debug = False  # with --debug it writes everything
program_began_at = time.monotonic()  # this module is among the first that are loaded

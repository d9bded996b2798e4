"""From which level on a process writes log lines until `log.configure` says more.

Apart from `log`, which takes a moment to load: a help text has nothing to log.
"""

from __future__ import annotations

is_command = (
    False  # a command writes errors alone, defects of ours: it says by itself what fails, once and with what to do
)
is_debug = False  # with --debug it writes everything

"""Event service: the session-event log."""

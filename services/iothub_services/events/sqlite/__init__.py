"""The session-event log in a SQLite file."""

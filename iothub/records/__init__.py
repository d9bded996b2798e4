"""Stored formats: events, session state, the fold, message records, the key grammar. Standard library only."""

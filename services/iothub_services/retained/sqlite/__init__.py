"""Retained messages in a SQLite file."""

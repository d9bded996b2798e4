"""The table of what each client has asked last of a file, beside the tables of its schema.

It is no part of the schema's version: a hub without workers neither makes nor reads it.
"""

from __future__ import annotations

CREATE = """CREATE TABLE IF NOT EXISTS request (
    client BLOB PRIMARY KEY, number INTEGER NOT NULL, answer BLOB NOT NULL, at_s INTEGER NOT NULL) WITHOUT ROWID"""
KEEP = "INSERT OR REPLACE INTO request VALUES (?, ?, ?, ?)"
FIND = "SELECT answer FROM request WHERE client = ? AND number = ?"
FORGET = "DELETE FROM request WHERE at_s < ?"

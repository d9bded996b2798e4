"""Numbered schema migrations."""

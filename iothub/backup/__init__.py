"""Backups of a data directory: a copy as of one moment, and the way back."""

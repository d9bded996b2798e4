"""Spark pipelines over the event log (not there yet)."""

"""Counters, Prometheus exposition, $SYS."""

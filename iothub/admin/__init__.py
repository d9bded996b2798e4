"""REST API and dashboard (not there yet)."""

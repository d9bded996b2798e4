"""The iothub command: parses, calls, prints; no logic."""

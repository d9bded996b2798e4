"""Pure functions from frames to frames, and what they run per key."""

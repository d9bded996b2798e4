"""Settings: their sections, how they are read and checked, and the data directory."""

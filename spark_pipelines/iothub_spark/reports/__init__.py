"""Pages that jobs write for people."""

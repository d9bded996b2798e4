"""Where frames come from: the event log, the session states, a checkpoint, the archive."""

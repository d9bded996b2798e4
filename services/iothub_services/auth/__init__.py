"""Who are you, what may you do."""

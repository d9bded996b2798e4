"""Session-state metadata: folds events into the state store."""

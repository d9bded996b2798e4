"""The embedded store: connections, group commit, quarantine."""

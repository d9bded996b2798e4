"""Where frames go: a new version of the checkpoint."""

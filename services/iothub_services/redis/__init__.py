"""Redis: commands gathered into pipelines, for the reactor and for threads."""

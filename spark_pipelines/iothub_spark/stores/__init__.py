"""The hub's stores as jobs open them: to read beside a running hub, and to write checkpoints and marks. No Spark here."""

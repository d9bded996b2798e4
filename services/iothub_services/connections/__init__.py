"""Who connects, leaves and is refused: log lines, and the last refused CONNECTs in memory."""

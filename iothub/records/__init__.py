"""What hubs and jobs share: stored formats, the fold, the key grammar, and what a job is told. Standard library only."""

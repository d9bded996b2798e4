"""What hubs and jobs share: stored formats, the fold, the key grammar, and the spec of a job. Standard library only."""

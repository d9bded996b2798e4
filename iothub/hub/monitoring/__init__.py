"""What others can see of a running hub: health, status, metrics, usage."""

"""The columns of every frame, declared once."""

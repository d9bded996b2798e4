"""The stores and servers of a hub: which driver serves which port, and what must be there before it starts."""

"""What the queue drivers on servers share: index in memory, known repeats, room, rounds of an append."""

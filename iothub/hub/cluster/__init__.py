"""The hub among the hubs that share its stores: links, members, the directory, what is taken over from one that is gone."""

"""Several processes of one machine as one hub: the supervisor, its children, and what asks all of them."""

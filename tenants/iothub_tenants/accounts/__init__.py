"""What is known of tenants: the SQL tables, every noun that the command line changes, and how a hub reads and follows them."""

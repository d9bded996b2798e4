"""What the command line and the REST API have in common: the forms in which both show what the accounts and a running hub say."""

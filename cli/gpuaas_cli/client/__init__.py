"""How a command reaches the server: contexts, sign-in, sessions, and SSH to machines."""

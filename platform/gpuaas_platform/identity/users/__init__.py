"""People: accounts, passwords, state."""

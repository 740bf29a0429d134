"""Users: their accounts, passwords and states."""

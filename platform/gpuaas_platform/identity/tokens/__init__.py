"""Access tokens and sessions."""

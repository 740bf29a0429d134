"""Access credentials: keys for hosts that accept only a customer's key."""

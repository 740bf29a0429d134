"""Credentials: private SSH keys of customers, for machines that accept only the customer's own key."""

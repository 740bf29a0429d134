"""Custody: stores secret values, in the platform's own database or in Vault."""

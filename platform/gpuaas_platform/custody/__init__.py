"""Custody: where secret values are kept, embedded or in Vault."""

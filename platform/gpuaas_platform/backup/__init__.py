"""Backups: make an encrypted file of the whole platform, check it, and restore it on an empty machine."""

"""Service accounts and their keys."""

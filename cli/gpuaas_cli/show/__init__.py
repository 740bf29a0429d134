"""Format records of the platform as text for users."""

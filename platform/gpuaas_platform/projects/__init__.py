"""Delete a project: the one act that asks every domain what it keeps for the project."""

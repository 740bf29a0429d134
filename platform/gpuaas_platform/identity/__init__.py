"""Identities and what they may do: organisations, projects, users, service accounts, tokens and role bindings."""

"""Releases of the agent, and upgrades of nodes to them."""

"""Nodes, the tasks their agents pull, and allocations: a project's claim on a node."""

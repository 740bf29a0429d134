"""Nodes together with the allocations on them: drain, retire, list."""

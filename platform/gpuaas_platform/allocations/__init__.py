"""Allocations: a project's claim on a node, from request to release."""

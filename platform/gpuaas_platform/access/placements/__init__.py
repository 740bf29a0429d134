"""Placements: artifacts that a node fetches to its machine, by digest."""

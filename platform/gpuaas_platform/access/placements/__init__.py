"""Placements: an artifact put on a machine by digest."""

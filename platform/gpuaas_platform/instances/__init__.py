"""App instances, their members and holds: what there is. `operations` changes it."""

"""App instances, their members and holds, as currently stored. `operations` changes them."""

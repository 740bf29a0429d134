"""People's own SSH keys, and their installation on the machines of allocations."""

"""The people of a project, and their accounts on the machines of its allocations."""

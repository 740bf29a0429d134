"""Role bindings, and break-glass access."""

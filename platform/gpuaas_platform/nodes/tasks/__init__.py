"""Node tasks: signed orders that a node's agent fetches, does and reports."""

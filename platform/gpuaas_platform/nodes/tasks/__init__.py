"""Node tasks: signed orders that a node's agent fetches and runs, and whose results it reports."""

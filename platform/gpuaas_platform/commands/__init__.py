"""Commands of the platform program beside the server."""

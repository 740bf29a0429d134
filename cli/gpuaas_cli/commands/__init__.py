"""One module per command; `main` imports only the one that was asked for."""

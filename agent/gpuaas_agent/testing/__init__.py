"""A fake platform to test an agent with: real sockets, real TLS, real signatures. Not part of the .pyz."""

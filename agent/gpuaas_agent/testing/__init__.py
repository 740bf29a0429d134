"""A fake platform for tests of the agent, with real sockets, TLS and signatures. Not part of the .pyz file."""

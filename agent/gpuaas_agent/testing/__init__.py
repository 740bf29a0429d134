"""A platform to test an agent against: real sockets, real TLS, real signatures. Not packed into the .pyz."""

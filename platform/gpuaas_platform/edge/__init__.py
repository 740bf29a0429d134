"""The HTTP edge: turns a request into a `Call` and the answer into a response, the same way for every endpoint."""

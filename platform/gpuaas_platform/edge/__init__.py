"""The HTTP edge: from a request to a `Call` and back, the same way for every row of the endpoint table."""

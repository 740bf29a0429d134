"""Pure rules of the protocol: what may be requested, reported and exited, and what follows.

The platform enforces them; the SDK's fake platform imports the same functions."""

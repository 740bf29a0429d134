"""Runtime secrets that an app issues for its machines."""

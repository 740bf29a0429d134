"""Runtime secrets: values that a controller issues for its machines."""

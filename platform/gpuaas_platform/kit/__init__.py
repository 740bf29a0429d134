"""Domain-free tools: store, clock, ids, wake-ups, settings."""

"""Domain-free tools: store, clock, ids, wake-ups, settings. Knows nothing of what the platform manages."""

"""Tools that belong to no domain: store, clock, ids, wake-ups, settings."""

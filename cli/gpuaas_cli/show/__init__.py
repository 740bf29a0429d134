"""Pure: records of the platform as lines for people."""

"""Records of the platform as lines for people."""

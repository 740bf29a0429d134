"""Content that apps are made of: published by digest, verified, promoted, and handed out for a task."""

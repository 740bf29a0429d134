"""Artifacts: content that apps use. It is published by digest, verified, promoted and delivered."""

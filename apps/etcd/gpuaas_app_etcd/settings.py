"""Time limits of the app. It uses those of the kit's `quorum` as they are."""

SNAPSHOT_S = 1800.0
"""How long the copy of a large database may take."""

"""Time limits of the app."""

from gpuaas_sdk.controller.quorum import Settings

SETTINGS = Settings(start_s=120.0, answer_s=2.0, safe_s=30.0)
SNAPSHOT_S = 1800.0
"""How long the copy of a large database may take."""

"""Policy overlays: what the platform, an organisation and a project narrow. Other domains ask `service` and `rules`."""

"""Policy overlays of the platform, organisations and projects. Other domains use `service` and `rules`."""

"""Machine access: grants with short-lived SSH certificates, and how they end."""

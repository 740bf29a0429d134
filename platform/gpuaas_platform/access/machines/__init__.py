"""Machine access: short SSH certificates, who holds them, and how they end."""

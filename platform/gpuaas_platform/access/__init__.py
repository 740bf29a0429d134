"""Access to machines and to secret values: grants, artifact placements, runtime secrets and credentials."""

"""The control plane. `main` starts it, `server` puts the parts together; each domain is a folder of the same files."""

"""The control plane. `main` starts it, `server` assembles it; each domain is a folder with the same file names."""

"""The Slurm app. It runs as its own process, has its own releases, and calls the platform only through the SDK."""

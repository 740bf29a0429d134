"""The Slurm app: its own process, its own release; it reaches the platform only through the SDK."""

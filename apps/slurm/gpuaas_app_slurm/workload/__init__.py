"""Slurm on machines: commands, files and what they print. Nothing here is about the platform."""

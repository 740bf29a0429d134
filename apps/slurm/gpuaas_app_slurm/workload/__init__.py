"""Slurm on machines: commands, files and what they print. Nothing here knows the platform."""

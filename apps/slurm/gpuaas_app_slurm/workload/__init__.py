"""Slurm on machines: commands, files and what they print. No module here uses the platform."""

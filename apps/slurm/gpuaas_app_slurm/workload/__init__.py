"""Slurm on machines, without the platform: install it, start it, read and change its nodes and jobs, remove it."""

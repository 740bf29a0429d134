"""Benchmarks that compare two things in the same run on the same machine and print the ratio."""

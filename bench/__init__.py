"""Side-by-side benchmarks. Every number is a ratio against a floor measured in the same run on the same machine."""

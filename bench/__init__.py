"""Benches: each measures figures of the project as ratios. Both sides of a ratio are measured in the same run."""

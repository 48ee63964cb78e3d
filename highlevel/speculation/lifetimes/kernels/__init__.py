"""Kernels over rows with lifetimes: records, multisets, entries of snapshots, and the changes that they cause."""

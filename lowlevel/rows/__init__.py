"""Readers of each kind of rows: blocks in, columns out."""

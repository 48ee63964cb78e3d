"""Frames to columns: from the first byte of a frame to the fields that queries name."""

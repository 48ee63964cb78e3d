"""Decoding of frames: from the first byte of a frame to the columns of queries."""

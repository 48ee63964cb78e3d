"""Copies of chosen records of captures in a new file: the frames of a block, and the writer of the file."""

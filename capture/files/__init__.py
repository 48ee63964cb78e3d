"""Capture formats: the records of files, streams and rings."""

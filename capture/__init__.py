"""Bytes to columns: capture files, flow exports and live links become Arrow batches."""

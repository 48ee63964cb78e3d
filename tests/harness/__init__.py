"""Processes, servers and other set-ups that tests use."""

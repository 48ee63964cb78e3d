"""The guide is run: its commands, queries, pipeline files and Python blocks."""

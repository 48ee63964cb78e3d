"""Containers: where the records of a capture are, whatever file or stream they come in."""

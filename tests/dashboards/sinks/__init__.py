"""Sinks in other systems."""

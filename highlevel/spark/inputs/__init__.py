"""Divide the inputs of a run into tasks, and read them in these tasks."""

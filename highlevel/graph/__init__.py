"""Queries as graphs of operators: joins, unions, selections, and windows over what other queries give."""

"""Readers of each kind of rows: they convert blocks of records into columns of rows."""

"""Watermarks of links, computed from the rows of the link, its source and the clock."""

"""Watermarks of links: how the low watermark of a link is computed from its rows, its source and the clock."""

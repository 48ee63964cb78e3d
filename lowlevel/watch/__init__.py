"""Watchlists: lists of addresses, prefixes and numbers in files that are read again when they change."""

"""Punctuation generation: how a link's low watermark is made, by what is known of the order of its rows."""

"""Operators over partials and punctuation that do not depend on an engine, and the engines that run them."""

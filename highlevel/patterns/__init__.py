"""Patterns over disordered streams: augmented finite automata (Chandramouli, Goldstein and Maier, 2010)."""

"""Binding: names to columns, literals to values, and syntax trees to typed expressions."""

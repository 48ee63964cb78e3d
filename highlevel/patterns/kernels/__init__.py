"""Kernels over partial matches: the runs of an automaton over rows in any order."""

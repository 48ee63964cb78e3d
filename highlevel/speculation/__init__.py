"""Provisional results of windows, and their corrections (Goldstein and Hong; Goldstein et al., CEDR)."""

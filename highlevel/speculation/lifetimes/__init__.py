"""Streams of rows with lifetimes, and the operators over them (Goldstein and Hong; Goldstein et al., CEDR)."""

"""Functions with a state for the sampling operator: one module per family, and the table FAMILIES."""

"""Ready queries by name, with parameters."""

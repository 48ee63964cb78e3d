"""GSQL text to a plan: a low-level part and a high-level part."""

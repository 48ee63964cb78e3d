"""Windows of queries: from the parameters in the syntax tree to the window of a plan, and back to text."""

"""Output of results and progress: tables, files, the console, plots."""

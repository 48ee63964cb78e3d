"""Results and progress for people: tables, files, the console, plots."""

"""The command line, the output of results and counters, and the long-running commands."""

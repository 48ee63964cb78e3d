"""The commands of the command line, one module per command: options, checks of the options, and the calls."""

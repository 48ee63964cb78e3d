"""The commands of the command line, a file for each: options, what they refuse, and which parts do the work."""

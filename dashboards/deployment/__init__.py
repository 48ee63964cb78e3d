"""Files that start a pipeline and its monitoring: configurations of servers, a compose file, and units of systemd."""

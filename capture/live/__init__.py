"""Live interfaces of Linux: a packet socket and the ring of memory that the kernel shares with it."""

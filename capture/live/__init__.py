"""Live interfaces of Linux: packet sockets and their rings, memory shared with the kernel."""

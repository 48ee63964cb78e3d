"""Prepare the machines of a cluster: wait for executors, check them, and compile kernels on them."""

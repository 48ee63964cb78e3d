"""Kernels that decode export datagrams into columns."""

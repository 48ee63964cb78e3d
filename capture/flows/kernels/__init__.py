"""The kernels that turn export datagrams into columns."""

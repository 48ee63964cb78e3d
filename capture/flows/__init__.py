"""Flow exports to columns: NetFlow v5, v7, v9 and IPFIX datagrams, their templates, times and sampling."""

"""Decoding of flow exports into columns: NetFlow v5, v7, v9 and IPFIX, with their templates, times and sampling."""

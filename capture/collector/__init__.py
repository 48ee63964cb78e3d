"""The UDP collector: a recorder of flow exports. Every datagram becomes a record of a rotating classic pcap file."""

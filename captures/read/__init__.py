"""Capture file formats: pcap, pcapng, ERF, and what compresses them."""

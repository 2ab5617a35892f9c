"""Wireshark and tshark: their opinion, their display filters, and captures for them."""

"""The second opinion: our reading of a capture beside Wireshark's."""

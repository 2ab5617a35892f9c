"""What may be wrong: one small function each."""

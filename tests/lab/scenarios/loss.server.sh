lose 0.5

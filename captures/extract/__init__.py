"""A part of a capture as a capture of its own: frames of chosen RPCs, with what belongs to them, perhaps anonymized."""

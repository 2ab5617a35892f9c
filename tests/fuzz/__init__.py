"""``make fuzz``: coverage-guided fuzzing of every decoder, of whole conversations, and of every command."""

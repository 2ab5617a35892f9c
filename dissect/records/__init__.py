"""Every noun as a dictionary: the JSON of every command, without click or rich."""

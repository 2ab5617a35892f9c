"""A capture in panes on the terminal: a list, the tree of what is chosen, its packets or bytes, and a diagnosis."""

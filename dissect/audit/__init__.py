"""The conformance audit: which requirement was broken, by whom, where, and what the document says.

``auditor.Auditor`` listens to the analyzer; ``rule.all_rules()`` are the requirements, each a small function
in one of the modules here, over the nouns of ``nouns``.  Wherever the capture does not show it, the verdict is
'undecidable', never a guess.
"""

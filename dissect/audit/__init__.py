"""The conformance audit: which requirement was broken, by whom, where, and what the document says.

``auditor.Auditor`` looks on while the analyzer works; ``rule.all_rules()`` are the requirements, each a small function
in one of the modules here, over the nouns of ``nouns``.  Wherever the capture does not tell, the verdict is
'undecidable', never a guess.
"""

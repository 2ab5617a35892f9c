"""Diagnosis: what is wrong, what it costs and whom, since when, and what to look at next."""

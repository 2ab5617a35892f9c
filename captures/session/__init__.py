"""Passes over captures: read, analysed, and what commands ask of one."""

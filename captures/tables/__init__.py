"""The tables of a capture: in an embedded DuckDB, saved, as data sets, and for browse."""

"""A report as one HTML page, which needs no network: diagnosis, charts, tables, RPCs in full."""

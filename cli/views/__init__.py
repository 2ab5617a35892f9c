"""From a noun to a rich renderable.  Views neither read files nor print."""

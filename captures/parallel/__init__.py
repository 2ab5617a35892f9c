"""One capture among several processes: dealt out by pairs of hosts, analysed in shares, put together again."""

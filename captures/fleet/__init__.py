"""Many captures of many hosts, each analysed once, into one data set."""

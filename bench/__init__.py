"""Speed and memory beside tshark's, on inputs made from the sample captures: ``make bench``."""

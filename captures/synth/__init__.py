"""Traffic that two endpoints of our own make: the endpoints, their faults, and the wire between them."""

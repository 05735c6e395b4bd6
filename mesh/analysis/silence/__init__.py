"""Which brokers did not hear each other, and hence the parts of the mesh: from heartbeats to outages to
parts."""

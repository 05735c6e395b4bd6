"""Who did not hear whom, and hence the parts that the mesh was in: from heartbeats to outages to parts."""

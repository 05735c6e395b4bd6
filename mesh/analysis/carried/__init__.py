"""What was carried and dropped: brokers, links, traffic and drops, from `stats` rows and round trips."""

"""Traffic and loss: brokers, links, traffic and drops, from `stats` rows and round trips."""

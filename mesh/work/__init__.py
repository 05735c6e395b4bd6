"""How one durable subscription is worked off by several clients. Pure: events and ``now`` in, orders out."""

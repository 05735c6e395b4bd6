"""The distribution of one durable subscription's messages to several clients. Pure: events and ``now`` in,
orders out."""

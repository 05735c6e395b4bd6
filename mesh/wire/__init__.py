"""The frames on the wire, between brokers and between a broker and a client, and their strict readers.
Pure."""

"""The other brokers: their states and links, their interest, and how they are dialled."""

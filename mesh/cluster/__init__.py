"""The other brokers: who is alive, who is linked, what they want, and how they are dialled."""

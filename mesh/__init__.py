"""A mesh of message brokers over the Scalability Protocols."""

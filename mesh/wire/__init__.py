"""What goes on the wire between brokers, and between a broker and a client: frames, read strictly. Pure."""

"""One broker: its listeners, identity, event log and status, and the loop that joins them."""

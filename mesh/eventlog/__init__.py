"""The rows of the event log, defined once for those who write and those who read them."""

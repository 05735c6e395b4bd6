"""The rows of the event log, defined once for its writers and its readers."""

"""`make demo`: five real brokers, real traffic, a kill, a pause, and an analysis that must find both
faults."""

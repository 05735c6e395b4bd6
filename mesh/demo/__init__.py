"""`make demo`: five real brokers, real traffic, a kill, a pause, and an analysis that has to find out what
was done."""

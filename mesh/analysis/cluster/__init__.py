"""Spark: the Java it runs on, a session on this machine or a cluster, and what executors are sent."""

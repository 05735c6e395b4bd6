"""Spark: its Java, a session on this machine or a cluster, and the package for executors."""

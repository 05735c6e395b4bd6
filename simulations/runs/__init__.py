"""Runs: playing one or many, and replaying, shrinking and comparing them."""

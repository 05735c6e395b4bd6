"""Brokers and clients in virtual time, over a network and disks that fail on purpose. See
docs/guides/simulating.md.
"""

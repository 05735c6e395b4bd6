"""Mesh time: one clock for all brokers, made from heartbeats, that does not ask their wall clocks."""

"""Mesh time: one clock for all brokers, computed from heartbeats without their wall clocks."""

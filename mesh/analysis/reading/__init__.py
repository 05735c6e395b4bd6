"""Event logs as DataFrames: finds files, turns lines into rows, and reduces heartbeats in one pass."""

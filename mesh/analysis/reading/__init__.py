"""Event logs as DataFrames: files are found, lines become rows, and heartbeats are reduced in one pass."""

"""Runs: one that is played, many, one that is played again, made small, or held against another."""

"""Mutation testing: small bugs are put into a module one at a time, and its tests have to notice each."""

"""Sealed blocks on a client's disk, until homes have stored them.

`outbox` needs apsw, so a client imports it when it opens one and not before.
"""

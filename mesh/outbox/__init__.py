"""Sealed blocks on a client's disk, until homes have stored them.

`outbox` needs apsw, so a client imports it only when it opens one.
"""

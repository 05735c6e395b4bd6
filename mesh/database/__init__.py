"""SQLite databases that lose nothing that was committed: what `mesh.journal` and `mesh.outbox` stand on.

Needs apsw, so it is imported when a database is opened and not before.
"""

"""SQLite databases that never lose committed data: the base of `mesh.journal` and `mesh.outbox`.

Needs apsw, so it is imported only when a database is opened.
"""

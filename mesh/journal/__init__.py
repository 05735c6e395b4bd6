"""The disk storage of a home's durable subscriptions.

`journal` needs apsw, so a broker imports it only when it opens a journal.
"""

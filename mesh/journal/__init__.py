"""What a home keeps on disk of its durable subscriptions.

`journal` needs apsw, so a broker imports it when it opens a journal and not before.
"""

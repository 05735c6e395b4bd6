"""Where scenarios come from: files, such as those in ``shipped``, and seeds. And how a run's seed settles the
open choices of a scenario.
"""

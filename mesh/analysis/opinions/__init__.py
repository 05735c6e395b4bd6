"""Compares the reports of members about each other with the facts: changes, mistakes, the detector, views.

The decisions are pure and import only the standard library, so that they run on executors with bare Python:
`changes`, `mistakes`, `detector` and `views`. `tables` runs them in Spark.
"""

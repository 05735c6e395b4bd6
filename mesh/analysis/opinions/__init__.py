"""What members said of each other, held against what happened: changes, mistakes, the detector, views.

The decisions are pure and import nothing but the standard library, so that they run on executors with bare
Python: `changes`, `mistakes`, `detector` and `views`. `tables` feeds them through Spark.
"""

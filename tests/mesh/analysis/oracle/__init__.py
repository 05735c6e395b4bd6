"""Plain Python that computes the tables of the analysis from files: the expected results for Spark."""

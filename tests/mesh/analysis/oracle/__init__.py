"""Plain Python that computes the tables of the analysis from files: what Spark must give."""

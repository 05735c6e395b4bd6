"""What the analysis costs, beside what Spark takes for a scan of the same rows."""

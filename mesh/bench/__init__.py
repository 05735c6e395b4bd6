"""`mesh bench`: measures this project beside its peers in the same run, and prints ratios of medians."""

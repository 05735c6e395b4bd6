"""The actual effects of a simulation's faults, and their comparison with the findings from logs."""

"""Says from event logs how the mesh fared: churn, partitions, delivery. Spark is loaded when it runs."""

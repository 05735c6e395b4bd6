"""What brokers did: their lives with causes, and what follows from them: availability, churn, survival."""

"""Lives of brokers with the causes of their ends, and the figures from them: availability, churn,
survival."""

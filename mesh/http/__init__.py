"""The HTTP server of a broker: health, metrics, status, and a page with the live mesh."""

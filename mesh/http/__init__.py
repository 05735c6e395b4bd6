"""HTTP of a broker: health, metrics, status, and a page with the live mesh."""

"""The report as one HTML page: `plots` draws, `sections` says what stands where, `rendering` fills it in."""

"""The report as one HTML page: `sections` orders the content, `plots` draws, `rendering` fills the page."""

"""The report as one HTML page: `plots` draws, `sections` decides the content, `rendering` fills the
template."""

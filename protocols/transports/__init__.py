"""Transports: from a URL to open connections of frames."""

"""The conformance suite's fixtures, for the items that are proven here."""

from tests.conformance.conftest import case, link

__all__ = ["case", "link"]

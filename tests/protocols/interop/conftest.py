"""The conformance suite's fixtures and its choice of cases, for the items that are proven here."""

from tests.conformance.conftest import case, link, pytest_collection_modifyitems

__all__ = ["case", "link", "pytest_collection_modifyitems"]

"""Level ``stored`` and durable subscriptions, beside level ``accepted`` and beside JetStream."""

from mesh.bench.durable.works import TARGETS, cases

__all__ = ["TARGETS", "cases"]

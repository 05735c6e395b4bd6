"""What is known of a broker, a member or a run, gathered into one row for a decision in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def gathered(key: tuple[str, ...], lists: Mapping[str, tuple[DataFrame, str]]) -> DataFrame:
    """One row for each key that occurs in any of the frames. It has a list of structs for each name, which
    may be empty: the rows of that frame with the named columns, in any order.

    All frames are grouped at once. That is one shuffle, where grouping each and joining the groups takes one
    for each frame.
    """
    from pyspark.sql import functions as F

    rows = None
    for name, (frame, columns) in lists.items():
        each = frame.select(*key, F.struct(*columns.split()).alias(name))
        rows = each if rows is None else rows.unionByName(each, allowMissingColumns=True)
    assert rows is not None
    return rows.groupBy(*key).agg(*(F.collect_list(name).alias(name) for name in lists))

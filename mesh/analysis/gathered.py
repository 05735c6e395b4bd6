"""What is known of a broker, a member or a run, gathered into one row for a decision in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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


def columns_of(name: str, columns: str) -> Column:
    """A list that `gathered` made, as one struct of lists: for each column its values. ``zip(*struct)`` gives
    the rows again, as tuples.

    For a list of structs, Python makes a `Row` of each, and that takes longer than most decisions."""
    from pyspark.sql import functions as F

    return F.struct(*(F.col(f"{name}.{column}").alias(column) for column in columns.split())).alias(name)

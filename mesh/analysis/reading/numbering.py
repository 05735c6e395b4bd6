"""Checks with sums alone that the rows of a boot are numbered without gaps and repetitions.

Numbers 1 to n, each once, have a count, a xor and a sum that follow from n. A boot with other values lost
rows or has some twice; only its rows can tell which. All other boots need no second look.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

LOW_BITS: Final = 20
LOW: Final = (1 << LOW_BITS) - 1
"""Only the low bits are summed, so that no sum overflows."""

COUNTED: Final = ("n", "first_seq", "last_seq", "seq_xor", "seq_sum")


def count() -> list[Column]:
    """Aggregates over rows with a column ``seq``."""
    return [
        F.count(F.lit(1)).alias("n"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.bit_xor("seq").alias("seq_xor"),
        F.sum(F.col("seq").bitwiseAND(LOW)).alias("seq_sum"),
    ]


def merge() -> list[Column]:
    """The same aggregates over already aggregated rows."""
    return [
        F.sum("n").alias("n"),
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.bit_xor("seq_xor").alias("seq_xor"),
        F.sum("seq_sum").alias("seq_sum"),
    ]


def is_whole() -> Column:
    """True if each number from ``first_seq`` to ``last_seq`` occurs once."""
    return F.expr(
        f"n = last_seq - first_seq + 1 and seq_xor = (({_xor('last_seq')}) ^ ({_xor('(first_seq - 1)')})) "
        f"and seq_sum = ({_sum('(last_seq + 1)')}) - ({_sum('first_seq')})"
    )


def _xor(last: str) -> str:
    """The xor of 0, 1 ... ``last``."""
    return f"case {last} % 4 when 0 then {last} when 1 then 1 when 2 then {last} + 1 else 0 end"


def _sum(end: str) -> str:
    """The sum of the low bits of 0, 1 ... ``end`` - 1."""
    rest = f"({end} & {LOW})"
    return f"shiftright({end}, {LOW_BITS}) * {LOW * (LOW + 1) // 2}L + {rest} * ({rest} - 1) div 2"

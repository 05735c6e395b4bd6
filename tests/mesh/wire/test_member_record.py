"""Which of two records wins."""

from __future__ import annotations

from hypothesis import given

from mesh.cluster.membership import MemberRecord, merge
from tests.mesh.cluster.membership.driven import RECORDS


@given(RECORDS, RECORDS, RECORDS)
def test_merge_is_commutative_associative_and_idempotent(
    a: MemberRecord, b: MemberRecord, c: MemberRecord
) -> None:
    assert merge(a, b) == merge(b, a)
    assert merge(a, merge(b, c)) == merge(merge(a, b), c)
    assert merge(a, a) == a

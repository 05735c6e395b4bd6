"""M5 on the core itself: in whatever order news comes, and however often, a broker's table is the same."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from mesh.cluster.membership import MemberRecord, Membership, State

MEMBERS = (1, 2, 3)


def record(id: int, incarnation: int, state: State, boot: int) -> MemberRecord:
    return MemberRecord(id, incarnation, state, boot, f"broker-{id}", "host", "", "")


records = st.builds(
    record,
    id=st.sampled_from(MEMBERS),
    incarnation=st.integers(1, 4),
    state=st.sampled_from([State.ALIVE, State.SUSPECT, State.DEAD, State.LEFT]),
    boot=st.integers(1, 3),
)


def table(news: list[MemberRecord]) -> list[MemberRecord]:
    """The table of a broker that knew all members already: a member first reported as dead is not
    recorded.
    """
    core = Membership(record(9, 1, State.ALIVE, 9), rng=random.Random(1), now=0.0)
    core.heard([record(id, 0, State.ALIVE, 0) for id in MEMBERS], 1, 0.0)
    for each in news:
        core.heard([each], 1, 1.0)
    return sorted(core.records(), key=lambda held: held.id)


@given(news=st.lists(records, max_size=8), data=st.data())
def test_the_order_of_news_and_repetitions_make_no_difference(
    news: list[MemberRecord], data: st.DataObject
) -> None:
    again = data.draw(st.lists(st.sampled_from(news), max_size=4)) if news else []
    shuffled = data.draw(st.permutations([*news, *again]))
    assert table(list(shuffled)) == table(news)

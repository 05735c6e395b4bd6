"""Rights against the plain rule: allowed by some pattern, denied by none."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from mesh.access import ACTIONS, Principal, Rights
from mesh.access.principals import everything
from mesh.access.rights import CACHED_MAX
from mesh.topics import matches

TOPICS = [
    ".".join([first, *rest])
    for first in ("a", "b", "c", "$sys")
    for length in range(3)
    for rest in product("abc", repeat=length)
]
PATTERNS = ["a", "b", "a.b", "a.*", "*.b", "a.#", "*.b.#", "#", "*", "a.b.#", "a.*.c", "$sys.#", "$sys.a"]
some = st.lists(st.sampled_from(PATTERNS), max_size=3, unique=True).map(tuple)


def principal(allow: tuple[str, ...], deny: tuple[str, ...]) -> Principal:
    return Principal("p", publish=allow, deny_publish=deny, subscribe=allow, deny_subscribe=deny, ask=("z",))


def plain(allow: tuple[str, ...], deny: tuple[str, ...], topic: str) -> bool:
    return any(matches(one, topic) for one in allow) and not any(matches(one, topic) for one in deny)


@given(some, some)
def test_deny_wins_over_allow_for_all_patterns(allow: tuple[str, ...], deny: tuple[str, ...]) -> None:
    rights = Rights(principal(allow, deny))
    for topic in TOPICS:
        allowed = plain(allow, deny, topic)
        assert (not rights.refusal("publish", topic)) is allowed
        assert (not rights.refusal_to_publish(topic.encode())) is allowed
        assert (not rights.refusal_to_publish(topic.encode())) is allowed, "the decision that was kept"


@given(some, some, st.sampled_from(PATTERNS))
def test_an_allowed_subscription_matches_no_forbidden_topic(
    allow: tuple[str, ...], deny: tuple[str, ...], pattern: str
) -> None:
    rights = Rights(principal(allow, deny))
    refused = rights.refusal_of_pattern("subscribe", pattern)
    for topic in TOPICS:
        if matches(pattern, topic) and not refused:
            assert plain(allow, deny, topic)
    if not refused:
        assert not any(matches(one, topic) and matches(pattern, topic) for one in deny for topic in TOPICS)


@given(some, some, some)
def test_a_stock_subscriber_sees_exported_topics_that_it_may_subscribe_to(
    allow: tuple[str, ...], deny: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    rights = Rights(principal(allow, deny))
    narrowed = rights.narrowed(shown)
    for topic in TOPICS:
        wanted = any(matches(one, topic) for one in shown) and plain(allow, deny, topic)
        got = any(matches(one, topic) for one in narrowed) and not rights.refusal("subscribe", topic)
        assert got is wanted, (topic, narrowed)


@given(some, some, st.sampled_from(PATTERNS))
def test_a_further_deny_rule_grants_no_right(
    allow: tuple[str, ...], deny: tuple[str, ...], more: str
) -> None:
    before, after = Rights(principal(allow, deny)), Rights(principal(allow, (*deny, more)))
    for topic in TOPICS:
        assert not before.refusal("publish", topic) or after.refusal("publish", topic)


def test_refusals_name_the_rule() -> None:
    rights = Rights(Principal("sensors", publish=("telemetry.#",), deny_publish=("*.secret",)))
    assert rights.refusal("publish", "telemetry.secret") == (
        "principal 'sensors' may not publish to 'telemetry.secret': principals.sensors.deny_publish has"
        " '*.secret'"
    )
    assert rights.refusal("publish", "news") == (
        "principal 'sensors' may not publish to 'news': principals.sensors.publish has no pattern for it"
    )
    assert rights.refusal_of_pattern("subscribe", "news.#") == (
        "principal 'sensors' may not subscribe to 'news.#': principals.sensors.subscribe has no pattern that"
        " covers it"
    )
    assert rights.refusal("ask", "$sys.status").endswith("principals.sensors.ask has no pattern for it")
    assert rights.refusal_of_pattern("answer", "a").startswith("principal 'sensors' may not answer 'a'")


def test_the_size_of_a_body_is_bounded_by_a_rule_with_a_name() -> None:
    rights = Rights(Principal("p", publish=("#",), message_bytes_max=10))
    assert rights.refusal_of_size(10) == ""
    assert rights.refusal_of_size(11).endswith("principals.p.message_bytes_max is 10")


def test_decisions_that_are_kept_are_bounded() -> None:
    rights = Rights(Principal("p", publish=("t.#",)))
    for number in range(CACHED_MAX + 10):
        rights.refusal_to_publish(b"t.%d" % number)
    assert len(rights.publishing) == 10


def test_a_principal_with_all_rights_needs_no_look_up() -> None:
    assert everything("anonymous").may_do_everything
    rights = dict.fromkeys(ACTIONS, ("#", "$sys.#"))
    assert Principal("p", **rights).may_do_everything
    assert not Principal("p", **rights, deny_publish=("a",)).may_do_everything
    assert not Principal("p", **{**rights, "ask": ("#",)}).may_do_everything


def test_the_topics_of_the_mesh_need_a_pattern_of_their_own() -> None:
    """As everywhere, ``#`` does not match them."""
    rights = Rights(Principal("p", ask=("#",)))
    assert rights.refusal("ask", "$sys.status") and not rights.refusal("ask", "news")
    assert not Rights(Principal("p", ask=("$sys.#",))).refusal("ask", "$sys.status")

"""Routes: who wants a topic, by role, cached and forgotten."""

from __future__ import annotations

import tracemalloc

import pytest

from mesh.errors import TopicError
from mesh.topics.routing import Router
from mesh.wire.session_frames import Role


def test_roles_tell_listeners_from_those_who_answer() -> None:
    router: Router[str, str] = Router()
    router.subscribe(["a.*"], Role.LISTEN, "listens")
    router.subscribe(["a.#", "a.b"], Role.ANSWERS, "answers")
    router.set_remote("far", [("a.b", Role.LISTEN), ("#", Role.ANSWERS)])
    route = router.route(b"a.b")
    assert sorted(route.local) == ["answers", "listens"]
    assert route.local_answers == ("answers",)
    assert route.remote == route.remote_answers == ("far",)
    assert route.topic == "a.b"


def test_a_route_is_kept_until_anybody_changes_interest() -> None:
    router: Router[str, str] = Router()
    first = router.route(b"t")
    assert router.route(b"t") is first and router.cache[b"t"] is first
    router.subscribe(["t"], Role.LISTEN, "one")
    assert router.route(b"t").local == ("one",)
    router.unsubscribe(["t"], "one")
    assert router.route(b"t").local == ()


def test_a_brokers_interest_is_replaced_whole_and_forgotten_whole() -> None:
    router: Router[str, str] = Router()
    router.set_remote("far", [("a", 0), ("b", 1)])
    router.set_remote("far", [("b", 0), ("c", 0), ("c", 0)])
    assert [router.route(topic).remote for topic in (b"a", b"b", b"c")] == [(), ("far",), ("far",)]
    assert router.route(b"b").remote_answers == ()
    router.set_remote("far", [])
    assert router.route(b"c").remote == ()


def test_a_bad_pattern_changes_nothing() -> None:
    router: Router[str, str] = Router()
    router.set_remote("far", [("a", 0)])
    with pytest.raises(TopicError):
        router.set_remote("far", [("b", 0), ("a..b", 0)])
    with pytest.raises(TopicError):
        router.subscribe(["b", "a..b"], 0, "one")
    assert router.route(b"a").remote == ("far",) and router.route(b"b").local == ()


def test_what_is_no_topic_has_no_route() -> None:
    router: Router[str, str] = Router()
    for topic in (b"", b"a b", b"\xff", b"a.*"):
        with pytest.raises(TopicError):
            router.route(topic)
    assert not router.cache


def test_a_flood_of_topics_costs_the_cache_and_not_the_memory() -> None:
    router: Router[str, str] = Router(cache_bytes_max=50_000)
    largest = 0
    for number in range(1000):
        router.route(b"t.%d" % number)
        largest = max(largest, len(router.cache))
    assert 50 < largest < 150


def test_a_thousand_subscribers_of_everything_cost_one_tuple_and_not_one_a_topic() -> None:
    router: Router[int, str] = Router()
    for number in range(1000):
        router.subscribe(["sensor.#"], Role.LISTEN, number)
    tracemalloc.start()
    try:
        for number in range(1000):
            router.route(b"sensor.%d" % number)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 1000 * 1000, "a kilobyte a topic; eight a route if each had its own"
    assert len(router.route(b"sensor.1").everybody) == 1000


def test_routes_that_differ_in_takers_are_bounded_by_the_bytes_of_their_takers() -> None:
    router: Router[int, str] = Router(cache_bytes_max=1_000_000)
    for number in range(1000):
        router.subscribe(["#"], Role.LISTEN, number)
        router.subscribe([f"t.{number}.*"], Role.LISTEN, 1000 + number)
    largest = 0
    for number in range(1000):
        router.route(b"t.%d.x" % number)
        largest = max(largest, len(router.cache))
    assert largest < 150


def test_members_behind_one_neighbour_make_one_taker() -> None:
    hops = {"near": "near", "far": "near", "other": "other"}
    router: Router[str, str] = Router(hops.__getitem__)
    for member in hops:
        router.set_remote(member, [("t", Role.LISTEN)])
    assert router.route(b"t").remote == ("near", "far", "other")
    assert router.route(b"t").everybody == ("near", "other")
    hops["far"] = "other"
    router.forget_routes()
    router.set_remote("near", [])
    assert router.route(b"t").everybody == ("other",)

"""The homes that must keep a topic, from the known durable subscriptions."""

from __future__ import annotations

import pytest

from mesh.dataplane.durable_routes import DurableRoutes
from mesh.errors import TopicError


def names(routes: DurableRoutes, topic: str) -> list[str]:
    return [home.name for home in routes.wanting(topic.encode())]


def test_a_topic_is_kept_at_every_home_with_a_subscription_that_matches() -> None:
    routes = DurableRoutes()
    assert names(routes, "a.b") == []
    routes.change(1, "one", "", {"mail": ["a.#", "c"]}, [])
    routes.change(2, "two", "", {"jobs": ["a.b"], "more": ["a.*"]}, [])
    assert names(routes, "a.b") == ["one", "two"]
    assert names(routes, "c") == ["one"] and names(routes, "d") == []


def test_a_change_is_seen_by_topics_that_were_looked_up_before() -> None:
    routes = DurableRoutes()
    routes.change(1, "one", "", {"mail": ["a"]}, [])
    assert names(routes, "b") == []
    routes.change(1, "one", "", {"mail": ["b"]}, [])
    assert names(routes, "b") == ["one"] and names(routes, "a") == []


def test_a_pattern_of_two_subscriptions_stays_until_the_last_of_them_is_removed() -> None:
    routes = DurableRoutes()
    routes.change(1, "one", "", {"mail": ["a", "a"], "jobs": ["a"]}, [])
    routes.change(1, "one", "", {}, ["mail", "never made"])
    assert names(routes, "a") == ["one"]
    routes.change(1, "one", "", {}, ["jobs"])
    assert names(routes, "a") == [] and not routes.homes


def test_a_pattern_with_many_stars_matches_exactly_its_topics() -> None:
    """A widened pattern would ask, or wait for, a home that keeps nothing of the topic."""
    routes = DurableRoutes()
    routes.change(1, "one", "", {"mail": ["*.a.*.b.*.c.*"]}, [])
    assert names(routes, "1.a.2.b.3.c.4") == ["one"]
    assert names(routes, "1.a.2.b.3.d.4") == []
    routes.change(1, "one", "", {}, ["mail"])
    assert names(routes, "1.a.2.b.3.c.4") == []


def test_an_invalid_pattern_changes_nothing() -> None:
    routes = DurableRoutes()
    routes.change(1, "one", "", {"mail": ["a"]}, [])
    with pytest.raises(TopicError):
        routes.change(1, "one", "", {"jobs": ["b"], "bad": ["a..b"]}, ["mail"])
    assert names(routes, "a") == ["one"] and names(routes, "b") == []


def test_the_home_of_a_subscription_made_twice_is_one_that_is_linked() -> None:
    routes = DurableRoutes()
    assert routes.home_of("mail") is None
    routes.change(1, "one", "tcp://one", {"mail": ["a"]}, [])
    second = routes.change(2, "two", "tcp://two", {"mail": ["a"]}, [])
    found = routes.home_of("mail")
    assert found is not None and (found.name, found.url) == ("one", "tcp://one")
    second.link = object()  # type: ignore[assignment]
    assert routes.home_of("mail") is second


def test_homes_without_a_link_are_away_but_not_this_broker_itself() -> None:
    routes = DurableRoutes()
    routes.change(1, "me", "", {"mail": ["a"]}, [])
    routes.change(2, "two", "", {"b": ["a"], "a": ["a"]}, [])
    routes.change(3, "three", "", {"c": ["a"]}, []).link = object()  # type: ignore[assignment]
    assert routes.away(1) == [(f"{2:016x}", "two", ["a", "b"])]


def test_a_flood_of_topics_empties_the_cache_and_does_not_grow_memory() -> None:
    routes = DurableRoutes(cache_bytes_max=10_000)
    routes.change(1, "one", "", {"all": ["#"]}, [])
    for number in range(1000):
        assert names(routes, f"t.{number}") == ["one"]
        assert len(routes._cache) < 50

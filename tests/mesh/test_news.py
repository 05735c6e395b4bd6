"""The feed of events: each change once, and what belongs together in one line."""

from __future__ import annotations

from mesh.news import News, feed, gathered
from mesh.picture import compose
from tests.mesh.console import statuses


def down(a: str, b: str, ts: str, state: str = "link-down") -> News:
    return News(f"2026-11-21T{ts}Z", "link", f"link {a} - {b} down (closed)", state, (a,), (a, b))


def test_links_that_go_with_one_broker_are_one_line() -> None:
    """One death among five brokers caused four more lines, among forty brokers thirty-nine."""
    death = News("2026-11-21T10:00:02Z", "mem", "beta suspect → dead", "dead", ("alpha",))
    news = [
        down("alpha", "beta", "10:00:00"),
        down("beta", "gamma", "10:00:01"),
        death,
        down("beta", "delta", "10:00:03"),
        down("alpha", "gamma", "10:00:04"),
        down("beta", "epsilon", "10:00:30"),
    ]
    told = gathered(news)
    assert [item.text for item in told] == [
        "3 links of beta down",
        "beta suspect → dead",
        "link alpha - gamma down (closed)",
        "link beta - epsilon down (closed)",
    ]
    assert told[0].observers == ("alpha", "beta") and told[0].state == "link-down"
    assert gathered(news[:2]) == news[:2], "two are told one by one"
    up = [*news[:2], down("beta", "delta", "10:00:03", "link-up")]
    assert gathered(up) == up, "coming and going are two things"


def partition() -> list[News]:
    """Alpha, beta and gamma lose delta and epsilon, and the other way round."""
    sides = (("alpha", "beta", "gamma"), ("delta", "epsilon"))
    answers = statuses.split()
    for answer in answers:
        here, there = sides if answer["name"] in sides[0] else reversed(sides)
        answer["events"] = [
            statuses.changed(
                answer["name"], number, "09:01:05.0", other, "suspect", "dead", f"missed {number}"
            )
            for number, other in enumerate(there)
        ]
        assert answer["name"] in here
    return list(compose(answers).news)


def test_the_deaths_of_a_partition_are_a_line_for_each_side() -> None:
    """A partition of forty brokers filled the feed with forty lines."""
    told = gathered(partition())
    assert [(item.text, item.observers) for item in told] == [
        ("delta, epsilon suspect → dead", ("alpha", "beta", "gamma")),
        ("alpha, beta, gamma suspect → dead", ("delta", "epsilon")),
    ]
    assert told[1].shorter == ("alpha, beta, gamma → dead", "3 brokers → dead")


def test_changes_of_another_kind_or_time_are_distinguished() -> None:
    rows = [
        statuses.changed("alpha", 1, "09:01:05.0", "beta", "suspect", "dead", "missed 3"),
        statuses.changed("alpha", 2, "09:01:05.1", "gamma", "alive", "dead", "reported"),
        statuses.changed("alpha", 3, "09:01:09.0", "delta", "suspect", "dead", "missed 3"),
    ]
    news = feed(rows, {statuses.broker_id(name): name for name in statuses.NAMES})
    assert [item.text for item in news] == [
        "beta suspect → dead (missed 3)",
        "gamma alive → dead (reported)",
        "delta suspect → dead (missed 3)",
    ]
    assert gathered(news) == list(news)

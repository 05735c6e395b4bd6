"""News for each link: at once, then at most once a pause, and only the last change of each member."""

from __future__ import annotations

from math import inf

import pytest

from mesh.cluster.news import NEWS_PAUSE_S, News
from tests.mesh.cluster.membership.driven import record


def between(*members: int) -> News:
    news = News()
    for member in members:
        news.link_up(member)
    return news


def test_a_change_goes_at_once_to_all_links_but_the_one_it_came_from() -> None:
    news = between(2, 3, 4)
    assert news.due == inf
    news.tell([record(9)], 3, 1.0)
    assert news.due == 1.0
    assert news.take(1.0) == [(2, (record(9),)), (4, (record(9),))]
    assert news.due == inf and news.take(2.0) == []


def test_news_within_a_pause_is_sent_together_at_its_end() -> None:
    news = between(2)
    news.tell([record(9)], 0, 1.0)
    news.take(1.0)
    news.tell([record(8)], 0, 1.01)
    news.tell([record(7)], 0, 1.02)
    assert news.due == pytest.approx(1.0 + NEWS_PAUSE_S)
    assert news.take(1.02) == []
    assert news.take(news.due) == [(2, (record(8), record(7)))]


def test_only_the_last_change_of_a_member_is_sent() -> None:
    news = between(2)
    news.tell([record(9, 1), record(9, 2)], 0, 1.0)
    assert news.take(1.0) == [(2, (record(9, 2),))]


def test_a_whole_table_replaces_the_waiting_news_of_its_link() -> None:
    news = between(2, 3)
    news.tell([record(9)], 0, 1.0)
    assert news.told_all(2) is True and news.told_all(5) is False
    assert news.take(1.0) == [(3, (record(9),))]


def test_a_lost_link_drops_its_news_and_its_replacement_begins_without_any() -> None:
    news = between(2, 3, 4)
    news.tell([record(9)], 0, 1.0)
    news.link_down(2)
    news.link_up(3)
    assert list(news.links) == [3, 4]
    assert news.take(1.0) == [(4, (record(9),))]


def test_dropped_news_is_not_sent() -> None:
    news = between(2)
    news.tell([record(9)], 0, 1.0)
    news.drop()
    assert news.due == inf and news.take(9.0) == []
    news.tell([record(8)], 0, 9.0)
    assert news.take(9.0) == [(2, (record(8),))]

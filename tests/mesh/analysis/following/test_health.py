"""The console's view of a followed mesh, from a few rows in each batch."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

from rich.console import Console

from mesh.analysis.following.health import Batch, Death, Health, HeardLast, Wrote
from mesh.analysis.following.view import as_json, view

START_US = 1_795_000_000_000_000
NAMES = {"a": "alpha", "b": "beta", "c": "gamma"}


def batch(second: int, writers: str, pairs: str = "", *, stopped: str = "", dead: str = "") -> Batch:
    at = START_US + second * 1_000_000
    return Batch(
        wrote=tuple(
            Wrote(("run", node), at, 10, NAMES[node] if second == 0 else None, node in stopped or None)
            for node in writers
        ),
        heard=tuple(HeardLast("run", pair[0], pair[1], at) for pair in pairs.split()),
        deaths=tuple(Death(("run", node), NAMES[node], at, 2) for node in dead),
    )


def shown(health: Health, second: float, height: int = 40) -> str:
    console = Console(file=StringIO(), width=80, _environ={})
    console.print(view(health.picture(START_US / 1e6 + second), height))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_a_whole_mesh_is_up_and_the_delay_of_the_view_is_shown() -> None:
    health = Health()
    assert shown(health, 0).split("\n")[:2] == ["no rows yet", "0 rows, - a second, - behind"]
    health.take(batch(0, "abc", "ab bc"), START_US / 1e6)
    health.take(batch(2, "abc", "ab bc"), START_US / 1e6 + 2)
    said = shown(health, 3.5)
    assert said.startswith("3 up, 0 silent, 0 stopped\n60 rows, 15 a second, 1.5 s behind\n")


def test_a_silent_broker_is_listed_first_and_a_stopped_one_is_not_missed() -> None:
    health = Health()
    health.take(batch(0, "abc", "ab bc ac"), 0.0)
    health.take(batch(5, "c", stopped="c"), 5.0)
    health.take(batch(10, "a", dead="b"), 10.0)
    picture = health.picture(START_US / 1e6 + 10)
    states = {broker.name: broker.state for broker in picture.brokers}
    assert states == {"alpha": "up", "beta": "silent", "gamma": "stopped"}
    said = shown(health, 10)
    assert said.index("beta") < said.index("alpha")
    assert "1 up, 1 silent, 1 stopped" in said and "11:06:50 UTC beta was reported dead by 2 brokers" in said
    assert as_json(picture)["silent"] == ["beta"]


def test_brokers_that_do_not_hear_each_other_are_in_parts() -> None:
    health = Health()
    health.take(batch(0, "abc", "ab bc"), 0.0)
    assert health.picture(0.0).parts == (("alpha", "beta", "gamma"),)
    health.take(batch(10, "abc", "ab"), 10.0)
    assert health.picture(0.0).parts == (("alpha", "beta"), ("gamma",))
    assert "the mesh is in 2 parts" in shown(health, 10)


def test_a_broker_has_its_name_although_its_start_was_read_earlier() -> None:
    """A restarted follower showed brokers by their ids, since their `meta` rows had been read earlier."""
    health = Health({("run", "a"): "alpha"})
    health.take(batch(1, "ab"), 1.0)
    assert [broker.name for broker in health.picture(1.0).brokers] == ["alpha", "b"]


def test_brokers_that_were_read_before_it_began_are_shown() -> None:
    """A restarted follower showed only brokers that wrote since."""
    known = Health(known=batch(0, "abc", "ab bc", stopped="c"))
    known.take(batch(10, "a"), 10.0)
    picture = known.picture(10.0)
    assert {each.name: each.state for each in picture.brokers} == {
        "alpha": "up",
        "beta": "silent",
        "gamma": "stopped",
    }
    assert (picture.rows, picture.rows_per_s) == (40, None), "what was known is no batch of now"


def test_old_deaths_are_forgotten() -> None:
    health = Health()
    health.take(batch(0, "ab", dead="c"), 0.0)
    assert len(health.picture(START_US / 1e6 + 300).deaths) == 1
    assert health.picture(START_US / 1e6 + 301).deaths == ()


def test_old_logs_are_told_with_their_date_and_in_units_that_people_read() -> None:
    """Logs of last year were 28659747.8 s behind."""
    health = Health()
    health.take(batch(0, "abc", stopped="c"), 0.0)

    def said(seconds: float) -> str:
        console = Console(file=StringIO(), width=80, _environ={})
        console.print(view(health.picture(START_US / 1e6 + seconds, all_read=True)))
        assert isinstance(console.file, StringIO)
        return console.file.getvalue()

    assert "30 rows, - a second, 59.0 s behind" in said(59)
    assert "alpha silent for 57 s" in said(59)
    assert "30 rows, - a second, the newest from 2026-11-18 11:06:40 UTC\n" in said(600)
    assert "alpha silent for 10 minutes" in said(602)
    assert "alpha silent for 3 hours" in said(3 * 3600)
    assert "alpha silent for 331 days" in said(331 * 86400 + 2)


def test_lines_that_are_not_rows_are_counted() -> None:
    health = Health()
    health.take(replace(batch(0, "ab"), corrupt=2), 0.0)
    assert "lines are not rows" not in shown(Health(), 0)
    assert "20 rows, - a second, 0.0 s behind, 2 lines are not rows" in shown(health, 0)
    assert as_json(health.picture(0.0))["corrupt"] == 2
    health = Health()
    health.take(replace(batch(0, "ab", dead="c"), corrupt=1), 0.0)
    assert ", 1 line is not a row\n" in shown(health, 0)


def test_a_large_mesh_fits_a_small_terminal_and_what_is_wrong_comes_first() -> None:
    """Forty brokers that were up hid the deaths below the end of the screen."""
    health = Health()
    at = START_US + 10_000_000
    names = {f"{number:03d}": f"broker-{number}" for number in range(200)}
    wrote = [Wrote(("run", node), START_US, 1, name, None) for node, name in names.items()]
    late = [Wrote(each.node, at, 1, None, None) for each in wrote[30:]]
    heard = tuple(HeardLast("run", "030", node, at) for node in names)
    deaths = tuple(Death(("run", f"{number:03d}"), f"broker-{number}", at, 199) for number in range(30))
    health.take(Batch((*wrote, *late), heard, deaths), 0.0)
    said = shown(health, 10, height=24).splitlines()
    assert len(said) == 24
    assert max(map(len, said)) <= 80
    assert said[0] == "170 up, 30 silent, 0 stopped"
    assert said[2] == "✕ broker-0 silent for 10 s"
    assert "and 17 more" in said and "and 24 more deaths" in said
    assert said[-1].startswith("● broker-30, broker-31, ") and said[-1].endswith("…")

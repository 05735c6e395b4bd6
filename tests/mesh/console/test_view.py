"""The screen as text, at the sizes people use."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from mesh.console.brokers import broker_rows, brokers_table
from mesh.console.figures import duration, milliseconds, number, shortened
from mesh.console.screen import Screen
from mesh.console.signs import ASCII, signs_for
from mesh.console.view import head, news_lines, plain_line, plain_news, status_report, trouble_lines
from mesh.news import gathered
from mesh.picture import compose
from tests.mesh.console import statuses
from tests.mesh.console.scenes import seen


def drawn(renderable: RenderableType, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, _environ={}, legacy_windows=False)
    console.print(renderable, height=height)
    out = console.file
    assert isinstance(out, StringIO)
    return out.getvalue().rstrip("\n").split("\n")


SIZES = [(80, 24), (100, 30), (132, 43), (160, 50), (60, 15)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("make", [statuses.calm, statuses.after_a_kill, statuses.split])
def test_the_frame_fills_the_terminal_exactly(make: object, width: int, height: int) -> None:
    assert callable(make)
    lines = drawn(Screen(compose(make()), "09:00:00"), width, height)
    assert len(lines) == height
    assert {len(line) for line in lines} == {width}


def test_a_screen_of_80x24_shows_everything_that_an_operator_needs() -> None:
    lines = drawn(Screen(compose(statuses.after_a_kill(), silent=("beta",)), "09:01:07"))
    text = "\n".join(lines)
    assert "● 3 alive  ◐ 1 suspect  ✕ 1 dead" in lines[0]
    assert "dropped 37" in lines[1]
    assert "late 612 ms" in lines[1]
    for title in ("topology", "brokers", "events", "trouble", "rtt ms", "in/s", "out/s", "drop", "late"):
        assert title in text
    assert "✕ dead" in text
    assert "beta suspect → dead x4" in text
    assert "beta is dead" in text and "delta misses heartbeats" in text
    assert "09:01:07  q quits" in lines[-1]


def test_the_feed_has_room_for_all_trouble_when_there_are_few_events() -> None:
    picture = compose(statuses.after_a_kill(), silent=("beta",))
    picture = replace(picture, news=picture.news[:1])
    text = "\n".join(drawn(Screen(picture, "")))
    for said in ("beta is dead", "delta misses heartbeats", "the event loop of delta"):
        assert said in text


def test_each_trouble_is_whole_beside_the_queues_at_80x24() -> None:
    """Each of four sentences ended in the middle of a word, while the brokers had empty lines."""
    picture, past = seen("overload")
    lines = drawn(Screen(picture, "", past=past))
    title = next(place for place, line in enumerate(lines) if "─ trouble ─" in line)
    said = " ".join(line[41:-1].strip("│ ") for line in lines[title + 1 :])
    for sentence in (
        "gamma drops 400 messages a second",
        "the event loop of gamma was 12 s late",
        "gamma: journal 86 % full",
        "messages wait without a consumer in mail",
    ):
        assert sentence in said.replace("\u202f", " ")
    assert "durable subscriptions" in "\n".join(lines) and "● alive" in "\n".join(lines)


def test_a_cut_off_side_is_not_called_dead_alone() -> None:
    """A broker cannot tell a process that is gone from one behind a broken network."""
    text = "\n".join(drawn(Screen(compose(statuses.split()[:3]), "")))
    assert "✕ dead" in text and "delta, epsilon are dead or cut off" in " ".join(text.split())
    answering = "\n".join(drawn(Screen(compose(statuses.split()), "")))
    assert "✕ cut off" in answering and "✕ dead " not in answering, "what answers lives"


def test_an_event_that_is_too_long_is_shown_in_a_shorter_form() -> None:
    """Lines of 80 columns ended before the new state."""
    answers = statuses.split()[:3]
    for answer in answers:
        answer["events"] = [
            statuses.changed(
                answer["name"], number, "09:01:05.0", other, "suspect", "dead", "missed 3 rounds"
            )
            for number, other in enumerate(("delta", "epsilon"))
        ]
    news = gathered(compose(answers).news)
    (full,), (short,), (count,), (cut,) = (news_lines(news, 5, 80, cells=cells) for cells in (70, 36, 30, 20))
    assert full.plain == "09:01:05 delta, epsilon suspect → dead (missed 3 rounds) x3"
    assert short.plain == "09:01:05 delta, epsilon → dead x3"
    assert count.plain == "09:01:05 2 brokers → dead x3"
    assert cut.plain == "09:01:05 2 broke… x3"


def test_a_link_that_ended_shows_its_state_in_every_terminal() -> None:
    """Of long names the line of 80 columns ended before it."""
    answers = statuses.split()[:2]
    ended = statuses.link_changed("alpha", 1, "09:01:05.0", "epsilon", "down", "replaced")
    answers[0]["events"] = [ended]
    news = gathered(compose(answers).news)
    told = [news_lines(news, 5, 80, cells=cells)[0].plain for cells in (60, 38, 31)]
    assert told == [
        "09:01:05 link alpha - epsilon down (replaced)",
        "09:01:05 link alpha - epsilon down",
        "09:01:05 alpha - epsilon down",
    ]


def test_trouble_in_one_line_names_the_first_trouble_before_the_count_of_others() -> None:
    (line,) = trouble_lines(compose(statuses.after_a_kill(), silent=("beta", "gamma")), 1)
    assert line.plain == "1 of 3: beta is dead or cut off"


def test_a_split_is_seen_before_anything_is_read() -> None:
    lines = drawn(Screen(compose(statuses.split()), ""))
    text = "\n".join(lines)
    assert "split into 2 parts" in lines[0]
    assert sum("┃" in line or "╏" in line for line in lines) > 10, "a wall stands between the parts"
    assert "the mesh is split into 2" in text


def test_a_wide_screen_has_more_columns_and_names_the_witnesses_of_events() -> None:
    text = "\n".join(drawn(Screen(compose(statuses.after_a_kill())), 160, 50))
    for title in ("lost", "queue", "bytes/s", "since"):
        assert title in text
    assert "seen by alpha, gamma, delta, epsilon" in text


def test_disagreement_shows_how_many_agree() -> None:
    assert "✕ cut off 3/4" in "\n".join(drawn(Screen(compose(statuses.split()))))


def test_an_isolated_broker_says_so() -> None:
    lonely = statuses.status(state="isolated")
    text = drawn(Screen(compose([lonely])))
    assert "ISOLATED" in text[0]


def test_many_brokers_get_the_whole_width_and_trouble_comes_first() -> None:
    answers = statuses.crowd(40)
    answers[0]["members"][38]["state"] = "dead"
    text = "\n".join(drawn(Screen(compose(answers)), 100, 24))
    assert "topology" not in text and "185 up links" in text.replace(",", "")
    assert "✕ dead" in text, "a dead broker is not among those left out"
    assert "more" in text
    wide = "\n".join(drawn(Screen(compose(answers)), 160, 60))
    assert "round trip: " in wide and "✕ no link" in wide, "a wide screen has a matrix of the links"


def test_a_note_replaces_the_hints() -> None:
    assert drawn(Screen(compose(statuses.calm()), "", "no answer for 3 s"))[-1].startswith(
        "no answer for 3 s"
    )


def test_a_terminal_without_unicode_gets_letters() -> None:
    assert signs_for("ascii") is ASCII
    assert signs_for("UTF-8").unicode
    text = "\n".join(drawn(Screen(compose(statuses.after_a_kill()), signs=ASCII)))
    assert "D dead" in text
    assert not set(text) & set("●◐✕╭─│⠤")


def test_plain_lines_are_for_machines_and_logs() -> None:
    picture = compose(statuses.after_a_kill())
    line = plain_line(picture, "09:01:07")
    assert line.startswith("09:01:07 mesh=demo brokers=5 alive=3 suspect=1 dead=1 left=0 parts=1 ")
    assert "dropped=37" in line
    assert plain_news(picture.news[-1]).endswith(
        "delta alive → suspect (missed 1) (seen by alpha, gamma, epsilon)"
    )


def test_status_names_the_broker_its_members_and_its_trouble() -> None:
    answers = statuses.after_a_kill()
    console = Console(file=StringIO(), width=80, _environ={})
    console.print(status_report(compose(answers), answers[0], 80))
    out = console.file
    assert isinstance(out, StringIO)
    text = out.getvalue()
    assert "alpha (" in text
    assert "host-alpha pid 4242" in text
    assert "4 sessions, 9 subscriptions, 0 taps" in text
    answers[0] |= {"sessions": 1, "subscriptions": 1, "taps": ["news.#"]}
    console.print(status_report(compose(answers), answers[0], 80))
    assert "1 session, 1 subscription, 1 tap " in out.getvalue()
    assert "✕ dead" in text
    assert "30 dropped since the start: slow subscriber" in text


def test_omissions_of_a_status_are_shown_with_their_counts() -> None:
    """`+2` stood behind twenty patterns of a status that lacked thousands, and the screen said nothing."""
    patterns = [f"topic.{number}" for number in range(22)]
    left_out = {"interest": 4310, "taps": 5, "members": 7}
    cut = statuses.status(interest=patterns, omitted=left_out)
    picture = compose([cut])
    console = Console(file=StringIO(), width=200, _environ={})
    console.print(status_report(picture, cut, 200))
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "topic.19 ... and 4 312 more" in text
    assert "5 taps" in text
    assert "5 brokers and 7 more" in text
    assert "cut to fit, without 4 310 of interest, 5 of taps, 7 of members" in text
    screen = "\n".join(drawn(Screen(picture, "09:00:00"), 160, 50))
    assert "5 brokers and 7 more" in screen and "alpha: 4 310 of interest, 5 of taps" in screen
    narrow = "\n".join(drawn(Screen(picture, "09:00:00")))
    assert "5 brokers and 7 more" in narrow and "alpha: 4 310 of" in narrow
    assert "brokers=12 " in plain_line(picture, "09:00:00")


def test_a_link_omitted_from_a_cut_status_is_not_shown_as_half() -> None:
    """It was shown as a link of which one end only is up."""
    alpha, beta = statuses.status("alpha"), statuses.status("beta")
    beta["members"] = [each for each in beta["members"] if each["name"] != "alpha"]
    beta["omitted"] = {"members": 1}
    (edge,) = [each for each in compose([alpha, beta]).edges if {each.a, each.b} == {alpha["id"], beta["id"]}]
    assert edge.whole
    beta["omitted"] = {}
    (edge,) = [each for each in compose([alpha, beta]).edges if {each.a, each.b} == {alpha["id"], beta["id"]}]
    assert not edge.whole


NUMBERS = {
    None: "-",
    0: "0",
    7: "7",
    0.25: "0.2",
    999: "999",
    999.7: "1k",
    12_345: "12.3k",
    123_456: "123k",
    1_580_000: "1.58M",
    2.5e9: "2.5G",
}
DURATIONS = {None: "-", 5: "5s", 99: "99s", 100: "2m", 7200: "2h", 400_000: "5d"}
MILLISECONDS = {None: "-", 0.4: "0.40", 9.99: "9.99", 12.3: "12", 12_000.0: "12s"}


def test_figures_are_short_and_keep_their_leading_digits() -> None:
    assert {value: number(value) for value in NUMBERS} == NUMBERS
    assert {value: duration(value) for value in DURATIONS} == DURATIONS
    assert {value: milliseconds(value) for value in MILLISECONDS} == MILLISECONDS
    assert all(len(number(10.0**power)) <= 5 for power in range(12))
    assert all(len(duration(10.0**power)) <= 4 for power in range(8))


def test_a_disk_that_cannot_be_written_is_trouble_with_the_rows_at_stake() -> None:
    full = {"rows": 900, "waiting": 12, "lost": 3, "errors": 7, "failing": "No space left on device"}
    over = full | {"waiting": 0, "failing": None}
    first, second = statuses.calm()[:2]
    first |= {"log": full, "state_file": {"errors": 1, "failing": "Read-only file system"}}
    first |= {"durable_file": {"errors": 4, "failing": "Input/output error"}}
    second |= {"log": over, "state_file": {"errors": 1, "failing": None}}
    lines = [line.plain for line in trouble_lines(compose([first, second]), 10)]
    assert "alpha: event log No space left on device: 12 rows wait, 3 lost" in lines
    assert "alpha: state not saved: Read-only file system" in lines
    assert "alpha: durable subscriptions of all homes not saved: Input/output error" in lines
    assert not any("beta" in line for line in lines), "it is over"
    one = statuses.calm()[0] | {"log": full | {"waiting": 1}}
    assert "alpha: event log No space left on device: 1 row waits, 3 lost" in [
        line.plain for line in trouble_lines(compose([one]), 10)
    ]


def test_messages_refused_for_want_of_room_are_trouble_until_there_is_room_again() -> None:
    """One refusal was trouble until the broker was restarted, and mesh check critical."""
    journal = {"failing": None, "share": 0.9, "filling": True, "refused": 1}
    full, wide = statuses.status(journal=journal), statuses.status(journal=journal | {"filling": False})
    told, over = ([line.plain for line in trouble_lines(compose([each]), 10)] for each in (full, wide))
    assert "alpha: 1 message not stored for want of room" in told
    assert over == ["none"]


WIDE = 200


def test_no_figure_is_cut() -> None:
    """`drop` showed "1.2…" of 1.23k, and the head `late 12s ms`."""
    answers = statuses.calm()
    for answer, power in zip(answers, (3, 4, 5, 6, 9), strict=True):
        count = int(1.2345 * 10**power)
        answer["totals"] = dict.fromkeys(answer["totals"], count)
        answer["rates"] = dict.fromkeys(answer["rates"], float(count))
        answer["loop"] = {"late_ms_max": 12_345.0}
        answer |= {"sessions": count, "subscriptions": count, "rss_bytes": 99_999 * 10**6}
        answer["members"][1]["since_s"] = 10.0**9
        answer["members"][1]["incarnation"] = count
    for width in (80, 100, 132, WIDE):
        text = "\n".join(drawn(brokers_table(broker_rows(compose(answers)), width, 10), width, 10))
        assert "…" not in text
    assert "1.23k" in text and "12s" in text
    assert "late 12 s" in head(compose(answers), 80)[1].plain


def test_shortened_names_that_differ_at_their_ends_stay_distinct() -> None:
    """Two brokers of one long name looked alike: the start of the id behind it was cut off."""
    names = [f"a-very-long-name-of-a-broker~{end}" for end in ("ab12", "cd34")]
    assert [shortened(name, 12)[-4:] for name in names] == ["ab12", "cd34"]
    assert all(
        cell_len(shortened(name, cells)) <= cells
        for name in [*names, "日本語の名前~ab12"]
        for cells in range(20)
    )
    assert shortened("alpha", 5) == "alpha"
    table = "\n".join(drawn(brokers_table(broker_rows(compose(statuses.crowd(12))), 60, 20), 60, 20))
    assert "broker-01" in table and "broker-11" in table


def test_the_links_of_one_death_are_one_event() -> None:
    """15 lines of links pushed the death itself out of the feed."""
    answers = statuses.calm()
    for answer in answers[2:]:
        answer["events"] = [
            statuses.row(
                answer["name"],
                number,
                "link",
                "09:01:02.000000",
                peer=statuses.broker_id(peer),
                dir="in",
                state="down",
                reason="reset",
            )
            for number, peer in enumerate(("beta", "alpha"))
        ]
    text = "\n".join(drawn(Screen(compose(answers)), 120, 40))
    assert "3 links of beta down" in text and "3 links of alpha down" in text
    assert "link beta - " not in text


def test_a_dead_broker_is_trouble_and_an_old_refusal_is_none() -> None:
    """`trouble: none` stood beside a dead broker, and each restart left its counters there forever."""
    answers = statuses.calm()
    answers[0]["drops"], answers[0]["refused"] = {"link_down": 7}, {"duplicate": 3}
    assert [line.plain for line in trouble_lines(compose(answers), 9)] == ["none"]
    answers[0]["members"][1] |= {"state": "dead", "link": None}
    del answers[1]
    assert trouble_lines(compose(answers), 9)[0].plain == "beta is dead or cut off"


def test_a_journal_that_fills_is_seen_in_status_and_top() -> None:
    """Only the log of its broker said so."""
    full = statuses.status(journal={"failing": None, "share": 0.84, "filling": True})
    assert "alpha: journal 84 % full" in "\n".join(drawn(Screen(compose([full])), 100, 30))
    report = "\n".join(drawn(status_report(compose([full]), full, 100), 100, 40))
    assert "alpha: journal 84 % full" in report
    below = statuses.status(journal={"failing": None, "share": 0.75, "filling": False})
    assert "full" not in "\n".join(drawn(Screen(compose([below])), 100, 30))


def test_damage_in_a_journal_is_seen_in_status() -> None:
    damaged = statuses.status(journal={"failing": None, "stored": 9, "damaged": 2})
    assert "2 damaged" in "\n".join(drawn(status_report(compose([damaged]), damaged, 100), 100, 40))
    sound = statuses.status(journal={"failing": None, "stored": 9, "damaged": 0})
    assert "damaged" not in "\n".join(drawn(status_report(compose([sound]), sound, 100), 100, 40))


def test_an_old_picture_says_so() -> None:
    """It showed "5 alive" in green while no broker answered."""
    lines = drawn(Screen(compose(statuses.calm()), "", "no broker answers for 9s", stale=True))
    assert lines[0].startswith("as it was: mesh demo") and lines[-1].startswith("no broker answers for 9s")


def test_figures_of_one_broker_are_called_those_of_its_clients() -> None:
    """`delivered 0/s` at the publisher's broker read as if nothing arrived anywhere."""
    answers = statuses.after_a_kill()
    one = "\n".join(drawn(status_report(compose(answers[:1]), answers[0], 100), 100, 60))
    assert "clients of alpha: published " in one
    everywhere = "\n".join(drawn(status_report(compose(answers), answers[0], 100), 100, 60))
    assert "clients of alpha" not in everywhere


def test_the_interest_of_a_status_is_that_of_clients() -> None:
    """Seven questions that every broker answers itself stood before the patterns of clients."""
    id = statuses.status()["id"]
    interest = ["$sys.look", f"$sys.look.{id}", "$sys.drain." + id, "news.#", "$sys.events.#"]
    status = statuses.status(interest=interest)
    lines = drawn(status_report(compose([status]), status, 100), 100, 60)
    (said,) = [line for line in lines if line.startswith("interest")]
    assert said.split() == ["interest", "news.#", "$sys.events.#"]


def test_a_narrow_report_is_folded_and_loses_nothing() -> None:
    """Twenty columns showed `mangrove demo 5…`, and facts in eight columns."""
    answers = statuses.after_a_kill()
    lines = drawn(status_report(compose(answers), answers[0], 20), 20, 120)
    text = " ".join(" ".join(lines).split())
    assert "1 dead" in text and "late" in text and "incarnation" in text

"""From the statuses of brokers to one picture of the mesh."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.console.screen import Screen
from mesh.console.view import status_report
from mesh.picture import compose, missing_links
from mesh.trouble import troubles
from tests.mesh.console import statuses
from tests.mesh.console.statuses import NAMES, broker_id, link, member, status
from tests.mesh.console.test_view import drawn


def test_a_calm_mesh_is_one_part_with_every_link_whole() -> None:
    picture = compose(statuses.calm())
    assert [node.name for node in picture.nodes] == sorted(NAMES)
    assert picture.count("alive") == 5
    assert len(picture.edges) == 10
    assert all(edge.whole and edge.ends == 2 for edge in picture.edges)
    assert len(picture.parts) == 1
    assert picture.total("msgs_in_s") == pytest.approx(5 * 12_345.6)
    assert picture.late_ms == 3.4


def test_the_state_shown_is_the_connected_brokers_and_disagreement_is_counted() -> None:
    picture = compose(statuses.split())
    delta = next(node for node in picture.nodes if node.name == "delta")
    assert delta.state == "dead", "alpha is connected and holds delta dead"
    assert (delta.agree, delta.observers) == (3, 4), "epsilon sees delta alive; delta itself is no witness"


def test_a_split_mesh_has_two_parts_largest_first() -> None:
    picture = compose(statuses.split())
    named = {node.id: node.name for node in picture.nodes}
    assert [[named[id] for id in part] for part in picture.parts] == [
        ["alpha", "beta", "gamma"],
        ["delta", "epsilon"],
    ]


def test_a_dead_broker_that_does_not_answer_is_in_no_part() -> None:
    picture = compose(statuses.after_a_kill(), silent=("beta",))
    assert len(picture.parts) == 1
    assert broker_id("beta") not in picture.parts[0]
    assert picture.silent == ("beta",)
    beta = next(node for node in picture.nodes if node.name == "beta")
    assert not beta.answered
    assert beta.msgs_in_s is None, "what is not known is None, never 0"


def test_a_link_that_only_one_of_two_answering_brokers_reports_is_not_whole() -> None:
    answers = statuses.calm()
    # beta has no link to alpha, but alpha believes that it has one to beta
    answers[1]["members"][0]["link"] = None
    edge = next(
        edge for edge in compose(answers).edges if {edge.a, edge.b} == {broker_id("alpha"), broker_id("beta")}
    )
    assert not edge.whole
    alone = compose(answers[:1])
    assert all(edge.whole for edge in alone.edges), "with one broker to ask, one end is all there is"


def test_link_rates_come_from_two_statuses_of_the_same_run() -> None:
    def at(uptime_s: float, msgs: int, boot: str = "b1") -> dict[str, object]:
        peers = [member("alpha", is_self=True), member("beta", link=link(msgs_in=msgs, msgs_out=msgs))]
        return status("alpha", peers, uptime_s=uptime_s, boot=boot)

    assert compose([at(12.0, 300)], [at(10.0, 100)]).edges[0].msgs_s == pytest.approx(200.0)
    assert compose([at(12.0, 300)]).edges[0].msgs_s is None
    assert compose([at(2.0, 300, "b2")], [at(10.0, 100)]).edges[0].msgs_s is None, "a restart is no rate"


def test_the_same_change_seen_by_many_is_shown_once() -> None:
    picture = compose(statuses.after_a_kill())
    dead = [item for item in picture.news if "suspect → dead" in item.text]
    assert len(dead) == 1
    assert dead[0].observers == ("alpha", "gamma", "delta", "epsilon")
    assert [item.ts for item in picture.news] == sorted(item.ts for item in picture.news)


def test_a_reason_that_says_no_more_than_the_state_is_left_out() -> None:
    """The feed had `beta alive → left (left)`."""
    gone = statuses.changed("alpha", 9, "09:00:00.000", "beta", "alive", "left", "left")
    (news,) = compose([statuses.status(events=[gone])]).news
    assert news.text == "beta alive → left"


def test_brokers_of_one_name_are_distinguished_by_their_ids() -> None:
    """The feed had `link alpha - alpha up`, and the table two rows called alpha."""
    names = {"b1": "alive", "c2": "left", "d3": "dead"}
    members = [
        statuses.member("alpha", state, id=f"{start}{0:014x}", is_self=start == "b1", url=f"tcp://{start}:1")
        for start, state in names.items()
    ]
    status = statuses.status("alpha", members, id=f"b1{0:014x}")
    assert [node.name for node in compose([status]).nodes] == ["alpha", "alpha~c200", "alpha~d300"]
    members[2]["state"] = "suspect"
    assert [node.name for node in compose([status]).nodes] == ["alpha~b100", "alpha~c200", "alpha~d300"]


def test_the_ended_runs_of_a_broker_that_runs_again_are_left_out() -> None:
    """A broker without a state folder was shown dead, and as trouble, for as long as the mesh remembered its
    last run. The table had two brokers that looked alike."""
    members = [statuses.member("alpha", is_self=True), statuses.member("beta", "dead", id="d" * 16)]
    members.append(statuses.member("beta"))
    picture = compose([statuses.status("alpha", members)])
    assert [(node.name, node.state) for node in picture.nodes] == [("alpha", "alive"), ("beta", "alive")]
    assert picture.unlisted == 0
    members[1]["url"] = "tcp://elsewhere:7770"
    assert len(compose([statuses.status("alpha", members)]).nodes) == 3, "that is another broker"


def test_a_killed_broker_that_others_do_not_miss_yet_is_no_part_of_its_own() -> None:
    """One killed broker was shown as a mesh split into 2 parts until the others believed it dead."""
    answers = [each for each in statuses.calm() if each["name"] != "beta"]
    for answer in answers:
        for each in answer["members"]:
            if each["name"] == "beta":
                each["link"] = None
    picture = compose(answers, silent=("beta",))
    assert picture.count("alive") == 5 and len(picture.parts) == 1
    assert [each.text for each in troubles(picture, {}, missing_links(picture))] == [
        "beta did not say how it is"
    ]


def test_links_of_brokers_that_were_not_asked_are_not_missing() -> None:
    picture = compose([statuses.status("alpha")])
    assert missing_links(picture) == [] and troubles(picture, {}, []) == []


def test_observers_may_have_different_reasons_for_the_same_news() -> None:
    rows = [
        [statuses.changed("alpha", 1, "09:00:00.0", "beta", "suspect", "dead", "missed 3 rounds")],
        [statuses.changed("gamma", 1, "09:00:00.1", "beta", "suspect", "dead", "reported")],
    ]
    news = compose([status("alpha", events=rows[0]), status("gamma", events=rows[1])]).news
    assert [item.text for item in news] == ["beta suspect → dead (missed 3 rounds)"]
    assert news[0].observers == ("alpha", "gamma")


def test_the_same_change_a_minute_later_is_news_again() -> None:
    rows = [
        statuses.changed("alpha", 1, "09:00:00.0", "beta", "alive", "suspect", ""),
        statuses.changed("alpha", 2, "09:01:00.0", "beta", "alive", "suspect", ""),
    ]
    assert len(compose([status(events=rows)]).news) == 2


def test_an_event_two_brokers_hold_copies_of_is_one_event() -> None:
    row = statuses.changed("alpha", 1, "09:00:00.0", "beta", "alive", "suspect", "")
    picture = compose([status(events=[row]), status("beta", events=[dict(row)])])
    assert picture.news[0].observers == ("alpha",)


def test_drops_and_refusals_are_summed_by_reason_largest_first() -> None:
    answers = [status(drops={"a": 1, "b": 5, "c": 0}), status("beta", drops={"a": 2})]
    assert list(compose(answers).drops.items()) == [("b", 5), ("a", 3)]


def test_no_status_is_no_picture() -> None:
    with pytest.raises(ValueError, match="at least one"):
        compose([])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def test_many_late_brokers_are_one_trouble() -> None:
    """Forty brokers on a busy machine were forty sentences, which hid everything else."""
    names = list(NAMES)
    late = [status(name, loop={"late_ms_max": 200.0 + number}) for number, name in enumerate(names)]
    said = [trouble.text for trouble in troubles(compose(late), {}, [])]
    assert said == [
        f"the event loops of {', '.join(reversed(names))} were late, by {199 + len(names)} ms at most"
    ]
    said = [trouble.text for trouble in troubles(compose(late[:2]), {}, [])]
    assert len([each for each in said if each.startswith("the event loop of ")]) == 2


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("link", "rates", "loop", "totals", "state", "incarnation", "since_s", "name", "host"),
                *("drops", "refused", "taps", "events", "interest", "omitted", "listeners", "members"),
            ]
        ),
        JSON | st.lists(JSON, max_size=2) | st.dictionaries(st.text(max_size=4), JSON, max_size=2),
    )
)
def test_a_broker_of_another_version_does_not_break_the_picture(odd: dict[str, object]) -> None:
    strange = {**status("beta"), **odd}
    strange.setdefault("members", [])
    if isinstance(strange["members"], list):
        own = member("beta", is_self=True) | odd
        strange["members"] = [*strange["members"], own, {"id": "x"}, "no member at all"]
    for answers in ([status("alpha"), strange], [strange, status("alpha")]):
        picture = compose(answers, [strange])
        assert len(picture.nodes) >= 5
        drawn(Screen(picture))
        drawn(status_report(picture, answers[0], 80))

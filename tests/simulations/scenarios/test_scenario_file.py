"""Scenario files: their content, and that every error names its line."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from simulations.faults import Fault
from simulations.kernel.network import LinkQuality
from simulations.runs.playing import play
from simulations.scenario import Scenario, Workload
from simulations.scenarios import scenario_file
from simulations.scenarios.generating import generate
from simulations.scenarios.scenario_file import ScenarioFileError, load, parse, shipped, write
from simulations.scenarios.selecting import resolve

FORMAT = Path(__file__).parents[3] / "docs" / "reference" / "scenario-format.md"

WHOLE = """\
name = "storm"  # 1
summary = "all of it"
number = 7
brokers = 6
period_s = 2
safety_s = 60

[network]
latency_s = 0.05
loss = 0.01

[workload]
publishers = 1
pause_s = 0.5

[pick]
victim = "1 of brokers"
bystander = "1 of rest of brokers"

[[fault]]  # 19
at_s = [1, 5]
kind = "crash"
a = "victim"

[[fault]]  # 24
at_s = 10
kind = "partition"
a = ["broker-1", "broker-2"]
b = "rest of brokers"
for_s = [3, 4.5]
repeat = 3
repeat_s = 12

[full]
brokers = 60
workload.publishers = 20
"""


def test_a_file_is_read_into_a_scenario() -> None:
    found = parse(WHOLE)
    assert found == Scenario(
        "storm",
        "all of it",
        number=7,
        brokers=6,
        period_s=2.0,
        safety_s=60.0,
        network=LinkQuality(latency_s=0.05, loss=0.01),
        workload=Workload(publishers=1, pause_s=0.5),
        picks=(("victim", "1 of brokers"), ("bystander", "1 of rest of brokers")),
        faults=(
            Fault(1.0, "crash", ("victim",), more=(("at_s:most", 5.0),)),
            Fault(
                10.0,
                "partition",
                ("broker-1", "broker-2"),
                ("rest of brokers",),
                3.0,
                more=(("for_s:most", 4.5), ("repeat", 3), ("repeat_s", 12.0)),
            ),
        ),
        full=(("brokers", 60), ("workload.publishers", 20)),
    )


def test_a_written_file_reads_as_the_same_scenario() -> None:
    for scenario in (parse(WHOLE), *(load(name) for name in shipped())):
        assert parse(write(scenario)) == scenario
        played = resolve(scenario.at_size("ci"), 3)
        assert parse(write(played)) == played


@pytest.mark.parametrize("seed", range(20))
def test_a_generated_scenario_can_be_written_and_read(seed: int) -> None:
    assert parse(write(generate(seed))) == generate(seed)


def test_a_value_of_0_differs_from_an_omitted_one() -> None:
    text = CRASH.replace("crash", "mass_leave")
    for line, value in (("value = 0\n", 0.0), ("", None)):
        scenario = parse(text + line)
        assert scenario.faults[0].value == value
        assert parse(write(scenario)) == scenario
        assert resolve(scenario, seed=1).faults[0].value == value


def test_texts_with_quotes_and_lines_survive() -> None:
    scenario = Scenario("test", 'it "broke"\nat\\last')
    assert parse(write(scenario)) == scenario


def test_texts_of_control_characters_survive_and_lone_surrogates_are_replaced() -> None:
    scenario = Scenario("test", "".join(map(chr, range(0x100))) + "\u2028")
    assert parse(write(scenario)) == scenario
    assert parse(write(Scenario("test", "half \ud800"))).summary == "half \ufffd"


def test_default_values_are_not_written() -> None:
    assert write(Scenario("test")) == 'name = "test"\n'


CRASH = 'name = "t"\n\n[[fault]]\nat_s = 1\nkind = "crash"\na = "broker-1"\n'


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        # unknown
        ('name = "t"\nbroker = 5\n', 2, "no field 'broker' in a scenario; did you mean 'brokers'?"),
        ('name = "t"\n[workload]\npublisher = 5\n', 3, "no field 'publisher' in [workload]; did you mean"),
        ('name = "t"\n[network]\nvigour = 5\n', 3, "no field 'vigour' in [network]; there are latency_s"),
        (CRASH + "fors = 3\n", 7, "no field 'fors' in a crash; did you mean 'for_s'?"),
        (
            'name = "t"\n[[expect]]\ncheck = "repeatable"\n',
            3,
            "repeatable finds nothing to look at in one run",
        ),
        (CRASH.replace('"crash"', '"crush"'), 5, "no fault kind 'crush'; did you mean 'crash'?"),
        (
            CRASH.replace('"broker-1"', '"broker-6"'),
            6,
            "there is no 'broker-6'; there are broker-1 to broker-5",
        ),
        (CRASH.replace('"broker-1"', '["broker-1", "me"]'), 6, "there is no 'me'"),
        ('name = "t"\n[pick]\none = "9 of brokers"\n', 3, "'9 of brokers' are 9, but there are only 5"),
        ('name = "t"\n[[expect]]\ncheck = "luck"\n', 3, "no check 'luck'"),
        (
            'name = "t"\n[[expect]]\ncheck = "detected"\nwithin = 3\n',
            4,
            "detected has no parameter 'within'; did you",
        ),
        (
            'name = "t"\n[[expect]]\ncheck = "M7"\nwithin_s = "3"\n',
            4,
            'within_s must be a number, and is "3"',
        ),
        ('name = "t"\n[[expect]]\ncheck = "M7"\nwhom = "broker-9"\n', 4, "there is no 'broker-9'"),
        ('name = "t"\n[[expect]]\ncheck = "accuses_nobody"\nof = "x"\n', 4, 'of is "x"; it must be'),
        ('name = "t"\n[[expect]]\nwhom = "brokers"\n', 2, "an expectation needs check"),
        (
            'name = "t"\ncompared = "flaps, fleps"\n',
            2,
            "nothing measured called 'fleps'; did you mean 'flaps'",
        ),
        ('name = "t"\n[full]\nsummary = "x"\n', 3, "cannot differ in 'summary'"),
        ('name = "t"\n[full]\nworkload.size = 4\n', 3, "cannot differ in 'workload.size'"),
        # impossible times
        (CRASH.replace("at_s = 1", "at_s = -1"), 4, "cannot begin at -1 s"),
        (CRASH.replace("at_s = 1", "at_s = nan"), 4, "at_s must be a number, and is nan"),
        (
            CRASH.replace("at_s = 1", "at_s = [1, inf]"),
            4,
            "must be a number or [least, most], and is [1, inf]",
        ),
        (CRASH.replace("at_s = 1", "at_s = 1e99"), 4, "it must be over by 10000000 s"),
        (CRASH.replace("at_s = 1", 'at_s = "1"'), 4, 'at_s must be a number, and is "1"'),
        (CRASH + "for_s = [1, 1e99]\n", 7, "may last until 1e+99 s; it must be over by"),
        (CRASH + "for_s = -1\n", 7, "cannot last -1 s"),
        (CRASH + "repeat = 10000\nrepeat_s = 1e300\n", 4, "it must be over by 10000000 s"),
        ('name = "t"\ndeadline_s = 1e-9\n', 2, "deadline_s is 1e-09; it must be at least 0.001"),
        ('name = "t"\nquiet_s = inf\n', 2, "quiet_s must be a number, and is inf"),
        ('name = "t"\nwarm_s = 1e9\n', 2, "warm_s is 1000000000; it must be at most 10000000"),
        ('name = "t"\n[[expect]]\ncheck = "M7"\nwithin_s = -3\n', 4, "within_s is -3; it must be at least 0"),
        (CRASH.replace("crash", "pause") + "for_s = 0\n", 7, "cannot last 0 s"),
        (CRASH.replace('"t"\n', '"t"\nsafety_s = 0.5\n'), 5, "after the end of the safety phase at 0.5 s"),
        (CRASH.replace("at_s = 1", "at_s = [5, 1]"), 4, "must be a number or [least, most], and is [5, 1]"),
        ('name = "t"\nwarm_s = -3\n', 2, "warm_s is -3; it must be at least 0"),
        # types and ranges
        ('name = "t"\nbrokers = "five"\n', 2, 'brokers must be a whole number, and is "five"'),
        ('name = "t"\nbrokers = 2.5\n', 2, "brokers must be a whole number, and is 2.5"),
        ('name = "t"\nbrokers = 1e3\n', 2, "brokers must be a whole number, and is 1000.0"),
        ('name = "t"\nquiet_s = true\n', 2, "quiet_s must be a number, and is true"),
        ('name = "t"\nworkload = 5\n', 2, "workload must be a table, and is 5"),
        ('name = "t"\n[fault]\nat_s = 1\n', 2, "begin every fault with a line [[fault]]"),
        ('name = "t"\nbrokers = 0\n', 2, "brokers is 0; it must be at least 1"),
        ('name = "t"\nnumber = -1\n', 2, "number is -1; it must be at least 1"),
        ('name = "t"\nbrokers = 10000000000\n', 2, "brokers is 10000000000; it must be at most 100000"),
        ('name = "t"\nfailure = 3\n', 2, "failure must be a table, and is 3"),
        ('name = "t"\n[full]\nworkload = 3\n', 3, "workload must be a table, and is 3"),
        ('name = "t"\n[network]\nloss = 2\n', 3, "loss is 2; a link needs latency"),
        ('name = "t"\n[network]\nshape = "round"\n', 3, 'shape is "round"; a link\'s shape must be'),
        # no TOML
        ('name = "t"\nbrokers = \n', 2, "invalid value, at column 11"),
        ('name = "t"\nname = "u"\n', 2, "cannot overwrite a value"),
        ('name = "t"\n[network]\n\n[network]\n', 4, "cannot declare ('network',) twice"),
        ('name = "t"\nsummary = """\n', 2, "at the end"),
        ("name = " + "[" * 5000, 1, "nested too deeply"),
        ("", 1, "a scenario needs a name"),
        (CRASH.replace("at_s = 1\n", ""), 3, "a fault needs at_s"),
        (CRASH.replace('a = "broker-1"\n', ""), 3, "name"),
        (CRASH + "value = 3\n", 7, "crash has no parameter value"),
        (CRASH + 'b = "broker-2"\n', 7, "crash strikes processes, which a names; it has no b"),
        (CRASH.replace('"broker-1"', "[]"), 6, "crash strikes processes; name some in a"),
        (CRASH.replace("crash", "power_off").replace("broker-1", "sub-1"), 6, "there is no host 'sub-1'"),
        (
            CRASH.replace("crash", "restart") + 'how = "softly"\n',
            7,
            "how is softly; it must be crash or stop",
        ),
        (CRASH.replace("crash", "one_edge"), 6, "one_edge needs 2 or more hosts; name none for all"),
        (CRASH.replace("crash", "reset_storm"), 6, "reset_storm needs 2 or more hosts"),
        (CRASH.replace("crash", "swizzle") + 'b = "broker-2"\n', 7, "happens among the hosts that a names"),
        (
            CRASH.replace("crash", "flip_flop") + 'what = "lossy_link"\nvalue = 5\n',
            8,
            "flip_flop: lossy_link: value is 5; it must be from 0 to 0.999",
        ),
        (
            CRASH.replace("crash", "flip_flop") + 'what = "partition"\nvalue = 5\n',
            8,
            "flip_flop: partition has no parameter value",
        ),
        (CRASH.replace("crash", "restart") + "how = true\n", 7, "how must be a text, and is true"),
        (CRASH.replace("crash", "hog") + "value = -1\n", 7, "value is -1; it must be from 0.001 to 3600"),
        (CRASH.replace("crash", "hog") + "value = 0\n", 7, "hog: value is 0; it must be from 0.001 to 3600"),
        (CRASH.replace("crash", "hog") + "value = [0, 2]\n", 7, "hog: value is 0; it must be from 0.001"),
        (CRASH.replace("crash", "stall") + "value = [1, 4000]\n", 7, "stall: value is 4000; it must be"),
        (CRASH.replace("crash", "slow_reader") + "value = 0\n", 0, ""),
        (CRASH.replace("crash", "mass_leave") + "value = [0, 2]\n", 0, ""),
        ('name = "t"\nquiet_s = 0\n', 2, "quiet_s is 0, in which nothing can be published that must arrive"),
        ('name = "t"\nquiet_s = 0\n[workload]\npublishers = 0\n', 0, ""),
        ('name = "t"\nquiet_s = 0\n[workload]\nsubscribers = 0\n', 0, ""),
        (CRASH.replace("crash", "hog") + 'value = "x"\n', 7, 'value must be a number, and is "x"'),
        (CRASH.replace("crash", "stall") + "for_s = 2\n", 7, "stall is over at once; it has no for_s"),
        (CRASH.replace("crash", "slow_process") + "value = 1e9\nfor_s = 1e6\n", 0, ""),
        (CRASH + "a2 = 3\n", 7, "no field 'a2'"),
        (CRASH.replace('a = "broker-1"', "a = 3"), 6, "a must be a name or a list of names, and is 3"),
        ("brokers = 3\n", 1, "a scenario needs a name"),
        ('name = "A"\n', 1, "must be 1 to 48 of the characters"),
    ],
)
def test_a_complaint_is_one_sentence_with_file_and_line(text: str, line: int, sentence: str) -> None:
    if not sentence:
        parse(text)  # far out, but not impossible
        return
    with pytest.raises(ScenarioFileError) as raised:
        parse(text, "mine.toml")
    message = str(raised.value)
    assert message.startswith(f"mine.toml:{line}: "), message
    assert sentence in message and "\n" not in message


def test_the_line_of_a_later_fault_is_its_own() -> None:
    second = CRASH + '\n[[fault]]\nat_s = 2\nkind = "crash"\na = [\n  "broker-1",\n  "broker-7",\n]\n'
    with pytest.raises(ScenarioFileError, match="^mine.toml:11: "):
        parse(second, "mine.toml")


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScenarioFileError, match="there is no such scenario file"):
        load(str(tmp_path / "none.toml"))
    with pytest.raises(ScenarioFileError, match="no scenario 'clam'; did you mean 'calm'"):
        load("clam")
    with pytest.raises(ScenarioFileError, match="cannot be read: Is a directory"):
        load(f"{tmp_path}/")
    with pytest.raises(ScenarioFileError, match="is no path of a file"):
        load("a\0.toml")


def test_a_file_that_is_not_utf8_is_one_sentence_with_its_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b'name = "t"\nsummary = "\xff\xfe"\n')
    with pytest.raises(ScenarioFileError, match=r"bad\.toml:2: it is not UTF-8"):
        load(str(bad))
    bad.write_bytes('\ufeffname = "t"\n'.encode())  # as editors on Windows write it
    assert load(str(bad)).name == "t"


def test_every_shipped_scenario_is_called_like_its_file() -> None:
    assert {"calm", "crash-and-return", "split-and-heal"} <= set(shipped())
    for name, path in shipped().items():
        assert load(name).name == name == path.stem


def test_the_examples_of_the_reference_page_are_scenarios_that_pass() -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", FORMAT.read_text(), re.MULTILINE | re.DOTALL)
    examples = [parse(block) for block in blocks]
    assert [example.name for example in examples] == ["split-and-crash", "two-of-them"]
    assert play(examples[0], seed=7).failed == ()


def test_the_reference_page_lists_every_field_with_its_default() -> None:
    rows = {
        match[1]: match[2]
        for match in re.finditer(r"^\| `(\w+)` \|([^|]*)\|", FORMAT.read_text(), re.MULTILINE)
    }
    for record, given in ((Scenario, {"name": "x"}), (Workload, {}), (LinkQuality, {})):
        made = record(**given)  # type: ignore[operator]
        plain = scenario_file._plain_fields(record)
        for each in fields(record):  # type: ignore[arg-type]
            if each.name in plain and each.name != "name":
                default = getattr(made, each.name)
                shown = "" if default in (None, "") else scenario_file.spelt(default).strip('"')
                assert rows.get(each.name, "?").strip("` ") == shown, each.name
    assert set(scenario_file.FAULT_FIELDS) <= set(rows)

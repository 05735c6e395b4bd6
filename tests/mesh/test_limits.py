"""Every bound on what clients may claim can be set by file, variable and flag, and reaches the data plane."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import pytest

from mesh import Broker, Client, ConfigError, Limits, MeshError, config
from mesh.cli.broker import broker_options, limit_flags
from mesh.dataplane.options import ExchangeOptions
from simulations import World
from simulations.programs.brokers import url_of
from simulations.programs.environment import environment_of
from simulations.world import Process

NOT_CLAIMS = {"session_messages", "session_bytes", "link_messages", "link_bytes", "delivery", "link_delivery"}
"""Windows that this broker grants, and the patience of its queues: nobody claims them."""


def test_every_bound_of_the_data_plane_can_be_set_and_has_the_same_default() -> None:
    ours = ExchangeOptions()
    assert {item.name for item in fields(ExchangeOptions)} - NOT_CLAIMS == {
        item.name for item in fields(Limits)
    }
    assert all(getattr(ours, name) == value for name, value in asdict(Limits()).items())


def test_limits_come_from_flag_variable_and_file(tmp_path: Path) -> None:
    file = tmp_path / "mangrove.toml"
    file.write_text("[limits]\npatterns_max = 100\nquestions_max = 7\nsession_patterns_max = 9\n")
    environ = {"MANGROVE_QUESTIONS_MAX": "8", "MANGROVE_SESSION_PATTERNS_MAX": "10"}
    loaded = config.load(limit_flags(["session_patterns_max=11"]), path=str(file), environ=environ)
    limits = loaded.config.limits
    assert (limits.patterns_max, limits.questions_max, limits.session_patterns_max) == (100, 8, 11)
    assert loaded.origins["limits.session_patterns_max"] == "flag --limit session_patterns_max"
    assert Broker(**broker_options(loaded.config)).options.limits == limits


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("patterns_max = 0", "limits.patterns_max must be an integer from 16 to 64512, not 0"),
        ("patterns_max = 1000000", "from 16 to 64512"),
        ("patterns_max = 1.5", "must be an integer"),
        ("patterns_max = true", "must be an integer"),
        ('patterns_max = "many"', "must be an integer"),
        ("answer_bytes_max = 1000", "from 2097152 to"),
        ("pattern_max = 1", "did you mean 'patterns_max'"),
    ],
)
def test_an_invalid_limit_is_one_sentence_with_its_line(line: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        config.parse(f"[limits]\n{line}\n", "my.toml")
    assert str(caught.value).startswith("my.toml:2: ")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("patterns_max", "is not NAME=NUMBER"),
        ("patterns_max=-5", "is not NAME=NUMBER"),
        ("patterns_max=lots", "is not NAME=NUMBER"),
        ("pattern_max=5", "there is no such limit; did you mean 'patterns_max'"),
    ],
)
def test_a_flag_that_is_no_limit_is_refused(given: str, sentence: str) -> None:
    with pytest.raises(config.FlagError, match=sentence):
        limit_flags([given])


def test_a_variable_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="MANGROVE_PATTERNS_MAX is 'x', which is not an integer"):
        config.load(environ={"MANGROVE_PATTERNS_MAX": "x"})


def test_limits_of_a_program_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"limits\.publishers_max must be an integer from 16"):
        Limits(publishers_max=1)


def test_a_broker_refuses_subscriptions_by_its_own_limit() -> None:
    async def main(process: Process) -> None:
        environment = environment_of(process)
        options = {"listen": url_of(process.address), "environment": environment}
        async with Broker(limits=Limits(session_patterns_max=20), **options) as broker:  # type: ignore[arg-type]
            async with Client(broker.url, name="greedy", environment=environment) as client:
                await client.subscribe(*(f"a.{number}" for number in range(20)))
                try:
                    await client.subscribe("b")
                except MeshError as error:
                    process.exposed = str(error)
                    await process.stopping.wait()

    with World(1) as world:
        node = world.add_node("alpha", main)
        node.start()
        world.run_for(20)
        assert "20 patterns and 1 more are above the 20 that a session may have" in str(node.exposed)

"""`mesh context`: brokers under names, and when one of them counts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from mesh.cli.app import main
from mesh.cli.exits import ExitCode
from mesh.cli.settings import BrokerFlags
from mesh.config import read_contexts
from mesh.config.contexts import CONTEXTS_MAX
from mesh.errors import ConfigError

PROD, TEST = "tls+tcp://prod.example.org:7770", "tcp://127.0.0.1:7771"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in list(os.environ):
        if name.startswith("MANGROVE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def both(home: Path) -> None:
    assert main(["context", "add", "prod", "--url", PROD, "--key-file", "me.key", "--tls-ca", "ca.pem"]) == 0
    assert main(["context", "add", "test", "--url", TEST, "--url", "tcp://127.0.0.1:7772", "--use"]) == 0


def test_contexts_are_kept_listed_used_and_forgotten(
    both: None, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["context", "list"]) == 0
    prod, test = capsys.readouterr().out.splitlines()
    assert prod == f"  prod             {PROD} tls_ca={home}/ca.pem key_file={home}/me.key"
    assert test == f"* test             {TEST},tcp://127.0.0.1:7772"
    assert main(["context", "use", "prod"]) == 0
    assert main(["context", "list", "--json"]) == 0
    document = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert document["schema"] == 1 and document["in_use"] == "prod"
    assert document["contexts"]["test"] == {"url": f"{TEST},tcp://127.0.0.1:7772"}
    assert main(["context", "rm", "prod"]) == 0
    contexts = read_contexts(os.environ)
    assert list(contexts.by_name) == ["test"] and contexts.in_use == ""
    assert main(["context", "use", "test"]) == 0 and main(["context", "use", "--none"]) == 0
    assert read_contexts(os.environ).in_use == ""


def test_precedence_is_flag_then_chosen_context_then_environment_then_the_one_in_use(
    both: None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "mangrove.toml").write_text('[client]\nurl = "tcp://file:1"\ntoken_file = "of-the-file"\n')
    used = BrokerFlags().settings()
    assert used.url is not None and used.url.startswith(TEST)
    assert used.token_file is None, "a context counts as a whole: nothing of the file's [client]"
    monkeypatch.setenv("MANGROVE_CONTEXT", "prod")
    assert BrokerFlags().settings().key_file == f"{home}/me.key"
    monkeypatch.setenv("MANGROVE_KEY_FILE", "other.key")
    assert BrokerFlags().settings().key_file == "other.key"
    assert BrokerFlags(context="prod").settings().key_file == f"{home}/me.key", "a flag names the context"
    assert BrokerFlags(context="prod", key_file="given").settings().key_file == "given"
    monkeypatch.delenv("MANGROVE_KEY_FILE")
    for named in (BrokerFlags(url=["tcp://other:1"]).settings(),):
        assert named.url == "tcp://other:1" and named.key_file is None, "no credential goes to another broker"
    monkeypatch.setenv("MANGROVE_URL", "tcp://variable:1")
    assert BrokerFlags().settings().url == "tcp://variable:1"
    assert BrokerFlags(context="test").settings().url != "tcp://variable:1"
    assert BrokerFlags(context="prod").settings().timeout_s == 5.0, "timeouts are no part of a context"


def test_config_show_says_which_context_a_value_is_of(both: None, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["config", "show", "--origin"]) == 0
    assert "# context test" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["context", "use", "prd"], ExitCode.CONFIG, "there is no context 'prd'; did you mean 'prod'?"),
        (["context", "rm", "zzz"], ExitCode.CONFIG, "there is no context 'zzz'"),
        (["context", "use"], ExitCode.USAGE, "give the name of a context, or --none"),
        (["context", "add", "a b", "--url", TEST], ExitCode.CONFIG, "is no name for a context"),
        (["context", "add", "prod", "--url", TEST], ExitCode.FAILED, "--replace replaces it"),
        (["context", "add", "new", "--url", "tpc://x"], ExitCode.USAGE, "tpc"),
        (["context", "add", "new", "--url", ""], ExitCode.USAGE, "needs the URL"),
        (["status", "--context", "prd"], ExitCode.CONFIG, "there is no context 'prd'"),
    ],
)
def test_mistakes_are_one_sentence(
    both: None, arguments: list[str], code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    before = read_contexts(os.environ)
    assert main(arguments) == code
    said = capsys.readouterr()
    assert sentence in said.err and said.err.count("\n") == 1 and not said.out
    assert read_contexts(os.environ) == before


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[contexts.a]\nurll = 'x'", "unknown key 'urll' in context 'a'; did you mean 'url'?"),
        ("[contexts.a]\nurl = 3", "url of context 'a' must be a string"),
        ("contexts = 3", "contexts a table"),
        ("in_use = 'gone'", "the context in use, 'gone', is not there"),
        ("in_use = [", "contexts.toml: "),
        ("#" * (1 << 21), "is larger than"),
        ("[contexts.'../x']\nurl = 'x'", "is no context"),
    ],
)
def test_a_file_that_is_wrong_says_where(home: Path, text: str, sentence: str) -> None:
    (home / "mangrove").mkdir()
    (home / "mangrove" / "contexts.toml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        BrokerFlags().settings()
    assert sentence in str(caught.value)
    assert BrokerFlags(url=["tcp://other:1"]).settings().url == "tcp://other:1", "it is not needed for this"


def test_the_number_of_contexts_is_bounded() -> None:
    contexts = read_contexts(os.environ)
    for number in range(CONTEXTS_MAX):
        contexts = contexts.with_context(f"c{number}", {"url": TEST})
    with pytest.raises(ConfigError, match="which is the limit"):
        contexts.with_context("one-more", {"url": TEST})
    assert len(contexts.with_context("c0", {}).by_name) == CONTEXTS_MAX

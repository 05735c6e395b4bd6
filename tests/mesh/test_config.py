"""Configuration: precedence, origins, and errors that name the place of the mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from mesh import config
from mesh.access.principals import KEYS
from mesh.errors import ConfigError

FILE = """\
# a comment
[broker]
name = "alpha"

listen = [
  "tcp://127.0.0.1:7770",
  "ipc:///run/a.sock",
]
period_s = 2

[client]
url = "tcp://10.0.0.1:1"
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mangrove.toml"
    path.write_text(FILE)
    return str(path)


def test_defaults_need_no_file() -> None:
    loaded = config.load(environ={"HOME": "/nonexistent"})
    assert loaded.config == config.Config()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.path is None


def test_a_file_gives_values_and_their_lines(file: str) -> None:
    loaded = config.load(path=file, environ={})
    assert loaded.config.broker.listen == ("tcp://127.0.0.1:7770", "ipc:///run/a.sock")
    assert loaded.config.broker.period_s == 2.0
    assert loaded.origins["broker.listen"] == f"{file}:5"
    assert loaded.origins["client.url"] == f"{file}:12"


def test_flags_win_over_environment_over_file(file: str) -> None:
    environ = {
        "MANGROVE_NAME": "beta",
        "MANGROVE_URL": "tcp://10.0.0.2:2",
        "MANGROVE_JOIN": "tcp://a:1, tcp://b:2",
    }
    loaded = config.load({"client.url": "tcp://10.0.0.3:3", "broker.listen": []}, path=file, environ=environ)
    assert loaded.config.broker.name == "beta"
    assert loaded.config.broker.join == ("tcp://a:1", "tcp://b:2")
    assert loaded.config.client.url == "tcp://10.0.0.3:3"
    assert loaded.origins["broker.name"] == "environment MANGROVE_NAME"
    assert loaded.origins["client.url"] == "flag --url"
    assert loaded.origins["broker.listen"] == f"{file}:5", "an empty list of flags is not a flag"


def test_the_file_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    home = tmp_path / "home" / ".config" / "mangrove"
    home.mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home")}
    (home / "config.toml").write_text('[broker]\nname = "from-home"\n')
    assert config.load(environ=environ).config.broker.name == "from-home"
    (tmp_path / "mangrove.toml").write_text('[broker]\nname = "from-here"\n')
    assert config.load(environ=environ).config.broker.name == "from-here"
    (tmp_path / "named.toml").write_text('[broker]\nname = "from-variable"\n')
    environ["MANGROVE_CONFIG"] = str(tmp_path / "named.toml")
    assert config.load(environ=environ).config.broker.name == "from-variable"


def test_an_unreadable_home_folder_has_no_file() -> None:
    """With `setpriv --reuid`, HOME stays /root: every command ended with "Permission denied". A name that is
    too long is refused in the same way, to root as well."""
    assert config.load(environ={"HOME": f"/{'x' * 300}"}).path is None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[broker]\nname = 'a'\nnam = 'b'\n", "f:3: unknown key 'nam' in [broker]; did you mean 'name'?"),
        ("[broker]\nzzz = 1\n", "f:2: unknown key 'zzz' in [broker]; there are name, listen"),
        ("\n[brokr]\n", "f:2: unknown section or key 'brokr'"),
        ("name = 'a'\n", "f:1: unknown section or key 'name'"),
        ("[broker]\nlisten = 'tcp://a:1'\n", "f:2: broker.listen must be a list of strings"),
        ("[broker]\nlisten = [1]\n", "f:2: broker.listen must be a list of strings"),
        ("[broker]\n\nperiod_s = true\n", "f:3: broker.period_s must be a number"),
        ("[broker]\nperiod_s = 0\n", "f:2: broker.period_s must be above zero"),
        ("[broker]\nname = 'a b'\n", "f:2: broker.name must be 1 to 64 of the characters"),
        ("[broker]\njoin = ['tcp:/a']\n", "f:2: broker.join has a bad address: 'tcp:/a' is not a URL"),
        ("[broker]\njoin = ['tcp://a:70000']\n", "the port must be"),
        ("[broker]\njoin = ['tcp://a:0']\n", "dialling needs a host and a port"),
        ("[broker]\nexport = ['a..b']\n", "f:2: broker.export has a bad pattern: "),
        (
            f"[broker]\nexport = {[f't{number}' for number in range(501)]}\n",
            "f:2: broker.export has 501 patterns; a broker shows stock SUB sockets at most 500",
        ),
        ("[broker]\nname = \n", "f: invalid value (at line 2, column 8)"),
    ],
)
def test_a_mistake_in_a_file_is_one_sentence_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "f")
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_mistakes_of_a_file_and_of_variables_are_found_at_once(tmp_path: Path) -> None:
    """`mesh config check` named only the first, so that a file with five took five attempts."""
    path = tmp_path / "m.toml"
    path.write_text("[broker]\nnam = 'b'\njoin = ['x', 'tcp://a:1', 'tcp://b']\nperiod_s = 0\n[brokr]\n")
    with pytest.raises(ConfigError, match=r"m\.toml:2: .* \(5 more: mesh config check .*m\.toml\)$"):
        config.load(path=str(path), environ={"MANGROVE_MESH": "a b"})
    loaded, mistakes = config.examine(path=str(path), environ={"MANGROVE_MESH": "a b"})
    sentences = [str(mistake) for mistake in mistakes]
    assert [sentence.rpartition("m.toml:")[2].partition(":")[0] for sentence in sentences[:5]] == [*"23345"]
    assert "MANGROVE_MESH" in sentences[5] and len(sentences) == 6
    assert loaded.config.broker.join == (), "a value that cannot be used is left out"


def test_a_mistake_in_a_variable_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="MANGROVE_PERIOD_S is 'soon', which is not a number"):
        config.load(environ={"MANGROVE_PERIOD_S": "soon"})
    with pytest.raises(ConfigError, match="MANGROVE_URL: client.url has a bad address: 'x'"):
        config.load(environ={"MANGROVE_URL": "x"})


def test_a_mistake_in_a_flag_is_a_usage_error() -> None:
    with pytest.raises(config.FlagError, match="--join: broker.join has a bad address: 'nowhere'"):
        config.load({"broker.join": ["nowhere"]}, environ={})


def test_a_missing_or_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such configuration file"):
        config.load(path=str(tmp_path / "none.toml"), environ={})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        config.load(path=str(tmp_path), environ={})
    (tmp_path / "latin").write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.load(path=str(tmp_path / "latin"), environ={})


def test_the_template_parses_and_holds_every_key_with_its_default() -> None:
    template = config.template()
    assert config.parse(template) == {}, "everything is commented out"
    live = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and (" = " in line or "# [" in line) else line
        for line in template.splitlines()
    )
    found = config.parse(live)
    assert set(found) == {*(option.name for option in config.options()), "principals"}
    (sensors,) = found["principals"][0]
    assert all(f"# {key} = " in template for key in KEYS) and sensors.rate_max == 1000
    assert config.as_section(sensors)[0] == "[principals.sensors]"


def test_principals_are_read_and_written_alike(tmp_path: Path) -> None:
    path = tmp_path / "mangrove.toml"
    path.write_text(
        '[broker]\nname = "alpha"\n\n[principals.alice]\ncertificates = ["alice"]\npublish = ["a", "b.#"]\n'
        'rate_max = 2.5\n\n[principals.anonymous]\nsubscribe = ["#"]\n'
    )
    alice, anonymous = config.load(path=str(path), environ={}).config.principals
    assert (alice.name, alice.publish, alice.rate_max) == ("alice", ("a", "b.#"), 2.5)
    assert anonymous.subscribe == ("#",)
    again = tmp_path / "again.toml"
    again.write_text("\n".join([*config.as_section(alice), *config.as_section(anonymous)]))
    assert config.load(path=str(again), environ={}).config.principals == (alice, anonymous)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '[principals.a]\npublsh = ["x"]',
            ":2: unknown key 'publsh' in [principals.a]; did you mean 'publish'?",
        ),
        ('[principals.a]\npublish = "x"', ":2: principals.a.publish must be a list of strings"),
        ('[principals.a]\npublish = ["x"]\n\n[principals."b c"]\npublish = ["x"]', "is 'b c'; a name is"),
        ("[principals.a]\nrate_max = 3", ":1: principals.a gives no right"),
        ("principals = 5", ":1: principals must be sections such as [principals.sensors]"),
        ("[principals]\na = 5", ":2: principals.a must be a section, [principals.a]"),
        (
            '[principals.a]\npublish = ["x"]\ncertificates = ["x"]\n[principals.b]\npublish = ["x"]\n'
            'certificates = ["x"]',
            "principals.b.certificates has 'x', which is that of 'a'",
        ),
    ],
)
def test_a_mistake_in_a_principal_names_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "mangrove.toml"
    path.write_text(text)
    _, mistakes = config.examine(path=str(path), environ={})
    assert any(sentence in str(mistake) for mistake in mistakes), mistakes


def test_unknown_variables_are_reported() -> None:
    assert config.load(environ={"MANGROVE_LISEN": "x", "OTHER": "y"}).unknown_variables == ("MANGROVE_LISEN",)


def test_the_mesh_key_comes_from_the_variable_or_the_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("a secret of some length\n")
    broker = config.BrokerConfig(mesh_key_file=str(path))
    assert config.mesh_key(broker, {}) == b"a secret of some length"
    assert config.mesh_key(broker, {"MANGROVE_MESH_KEY": "another secret"}) == b"another secret"
    assert config.mesh_key(config.BrokerConfig(), {}) is None


def test_a_useless_mesh_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    broker = config.BrokerConfig(mesh_key_file=str(path))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        config.mesh_key(broker, {})
    path.write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        config.mesh_key(broker, {})
    path.write_text("short")
    with pytest.raises(ConfigError, match="has 5 bytes"):
        config.mesh_key(broker, {})


def test_the_reference_page_lists_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "configuration.md").read_text()
    for option in config.options():
        assert f"| `{option.key}` | {option.kind} |" in page, f"{option.name} is not in configuration.md"
        assert f"`{option.env}`" in page


def test_a_key_file_below_an_unknown_home_folder_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container whose user id has no entry in the user database has this problem."""

    def unknown(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", unknown)
    broker = config.BrokerConfig(mesh_key_file="~/key")
    with pytest.raises(ConfigError, match="~/key: this user has no home folder"):
        config.mesh_key(broker, {})

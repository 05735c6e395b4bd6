"""The rules of the architecture: who may import whom, what a pure module may touch, what an import may load.

The table below is the picture in ``docs/design/architecture.md``. Imports point down only. A new module
without a row fails the first test: decide its layer before it grows.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocols", "mesh", "simulations")

# A pure module never touches these: it is given `now`, `rng` and bytes, and returns instructions.
IMPURE = (
    "asyncio",
    "time",
    "logging",
    "socket",
    "select",
    "threading",
    "os",
    "secrets",
    "uuid",
    "subprocess",
    "concurrent",
)
HEAVY = ("rich", "cyclopts", "pyspark", "pandas", "networkx", "pynng", "zmq", "uvloop", "apsw")
# The machines of `mesh.cluster`. Its other modules are shells around them.
PURE_CLUSTER = (
    "mesh.cluster.membership",
    "mesh.cluster.overlay",
    "mesh.cluster.remote_interest",
    "mesh.cluster.bus_probe",
    "mesh.cluster.core",
    "mesh.cluster.full_mesh",
    "mesh.cluster.joining",
    "mesh.cluster.news",
    "mesh.cluster.pace",
    "mesh.cluster.admission",
    "mesh.cluster.barriers",
    "mesh.cluster.durable_interest",
    "mesh.cluster.durable_table",
)
PURE_MESH = ("mesh.wire", "mesh.topics", "mesh.dataplane", *PURE_CLUSTER)
PURE_DATABASE = ("room", "wal")
PURE_JOURNAL = ("letters", "port", "records")
PURE_OUTBOX = ("draining", "port", "records")
PURE_HTTP = ("guard", "health", "messages", "metrics", "overview", "source")
ACCESS_OF_CLIENTS = ("mesh.access.credentials", "mesh.access.keys", "mesh.access.proofs")
PURE_CLIENTS = (
    "addresses",
    "arguments",
    "attached_work",
    "calls",
    "conversation",
    "feeds",
    "home_search",
    "introduction",
    "jobs",
    "landing",
    "messages",
    "pending",
    "pending_batch",
    "outbox_conversation",
    "outbox_filling",
    "outbox_notices",
    "publishing",
    "questions",
    "recent",
    "resending",
    "session_schedule",
    "tickets",
    "unacknowledged",
    "work_feeds",
)


@dataclass(frozen=True, slots=True)
class Layer:
    """One row: modules (a package covers its own), which of ours they may import, and what else they may
    not."""

    modules: tuple[str, ...]
    may_import: tuple[str, ...]
    may_not_import: tuple[str, ...] = HEAVY
    pure: bool = False


LAYERS = (
    Layer(
        ("protocols.errors", "protocols.options", "protocols.identity", "protocols.tls"),
        ("protocols.errors", "protocols.tls"),
        pure=True,
    ),
    Layer(
        ("protocols.wire",),
        ("protocols.wire", "protocols.errors", "protocols.options", "protocols.identity"),
        ("random", *HEAVY),
        pure=True,
    ),
    Layer(
        ("protocols.message", "protocols.pipe", "protocols.pipe_view", "protocols.statistics"),
        (
            "protocols.message",
            "protocols.pipe",
            "protocols.pipe_view",
            "protocols.wire",
            "protocols.errors",
            "protocols.options",
            "protocols.identity",
        ),
        ("random", *HEAVY),
        pure=True,
    ),
    Layer(
        ("protocols.patterns",),
        (
            "protocols.patterns",
            "protocols.message",
            "protocols.pipe",
            "protocols.pipe_view",
            "protocols.wire",
            "protocols.errors",
            "protocols.options",
        ),
        pure=True,
    ),
    Layer(
        ("protocols.roster",),
        ("protocols.patterns", "protocols.pipe", "protocols.statistics", "protocols.errors"),
        pure=True,
    ),
    Layer(("protocols.system", "protocols.waking"), ()),
    Layer(("protocols.peer_warnings",), ("protocols.pipe", "protocols.errors")),
    Layer(("protocols.dial_schedule",), ("protocols.errors",), pure=True),
    Layer(
        ("protocols.transports",),
        (
            "protocols.transports",
            "protocols.waking",
            "protocols.peer_warnings",
            "protocols.wire",
            "protocols.pipe",
            "protocols.message",
            "protocols.errors",
            "protocols.options",
            "protocols.identity",
            "protocols.tls",
        ),
    ),
    Layer(
        (
            "protocols.endpoint",
            "protocols.dialling",
            "protocols.listening",
            "protocols.events",
            "protocols.waiting",
            "protocols.channel",
            "protocols.core",
            "protocols.raw_socket",
            "protocols.serving",
            "protocols.socket",
            "protocols.sockets",
            "protocols.context",
            "protocols.device",
            "protocols.tls",
            "protocols.identity",
        ),
        ("protocols",),
    ),
    Layer(
        ("protocols.nng",),
        (
            "protocols.nng",
            "protocols.channel",
            "protocols.errors",
            "protocols.options",
            "protocols.serving",
            "protocols.socket",
            "protocols.waiting",
            "protocols.tls",
            "protocols.transports.base",
        ),
        ("rich", "cyclopts", "pyspark", "pandas", "networkx", "zmq"),
    ),
    # Blocking sockets share pure modules, addresses and certificates with the others.
    Layer(
        ("protocols.blocking",),
        ("protocols",),
        ("asyncio", *HEAVY),
    ),
    Layer(("protocols",), ("protocols",)),
    Layer(("mesh.errors", "mesh.spelling", "mesh.printable"), (), pure=True),
    Layer(("mesh.log_repeats",), (), pure=True),
    Layer(("mesh.logs",), ("mesh.log_repeats", "mesh.printable")),
    Layer(("mesh.wire",), ("mesh.errors", "mesh.wire"), pure=True),
    Layer(("mesh.topics",), ("mesh.errors", "mesh.wire", "mesh.topics"), pure=True),
    Layer(
        ("mesh.dataplane",),
        (
            "mesh.errors",
            "mesh.wire",
            "mesh.topics",
            "mesh.work",
            "mesh.access",
            *(f"mesh.journal.{name}" for name in PURE_JOURNAL),
            "mesh.dataplane",
            "protocols.wire.backtrace",
        ),
        pure=True,
    ),
    Layer(("mesh.work",), ("mesh.work",), ("random", *HEAVY), pure=True),
    # Clients use the formats of proofs and keys; the rest is the broker's.
    Layer(("mesh.access.proofs",), (), ("random", *HEAVY), pure=True),
    Layer(("mesh.access.keys",), ("mesh.errors",), ("random", *HEAVY), pure=True),
    Layer(
        ("mesh.access.credentials",),
        ("mesh.access.proofs", "mesh.access.keys"),
        ("random", *HEAVY),
        pure=True,
    ),
    Layer(("mesh.access",), ("mesh.errors", "mesh.topics", "mesh.access"), ("random", *HEAVY), pure=True),
    Layer(PURE_CLUSTER, ("mesh.errors", "mesh.wire", "mesh.topics", *PURE_CLUSTER), pure=True),
    # Programs that consume use it beside a client. It knows messages only by their ids.
    Layer(("mesh.idempotence",), ("mesh.errors",)),
    # Shared by writers and readers of the event log.
    Layer(("mesh.eventlog",), ("mesh.eventlog",), pure=True),
    Layer(("mesh.listen", "mesh.tls"), ("mesh.errors", "protocols")),
    Layer(("mesh.limits",), ("mesh.errors",), pure=True),
    Layer(
        ("mesh.config",),
        (
            "mesh.config",
            "mesh.access",
            "mesh.errors",
            "mesh.limits",
            "mesh.listen",
            "mesh.logs",
            "mesh.spelling",
            "mesh.topics",
            "protocols",
        ),
    ),
    Layer(
        tuple(f"mesh.database.{name}" for name in PURE_DATABASE),
        tuple(f"mesh.database.{name}" for name in PURE_DATABASE),
        pure=True,
    ),
    Layer(("mesh.database.background",), (), (*HEAVY, "threading", "time", "logging")),
    Layer(("mesh.database.thread",), (), ("asyncio", *HEAVY, "time", "logging")),
    # A shell around SQLite: its work is done when a call returns.
    Layer(
        ("mesh.database",),
        ("mesh.errors", "mesh.database"),
        ("asyncio", "threading", "time", "logging", *(name for name in HEAVY if name != "apsw")),
    ),
    Layer(
        tuple(f"mesh.journal.{name}" for name in PURE_JOURNAL),
        (
            "mesh.errors",
            "mesh.wire.blocks",
            "mesh.wire.durable_frames",
            *(f"mesh.journal.{name}" for name in PURE_JOURNAL),
        ),
        pure=True,
    ),
    Layer(
        ("mesh.journal.background",),
        ("mesh.errors", "mesh.database.background", "mesh.journal"),
        (*HEAVY, "threading", "time", "logging"),
    ),
    Layer(
        ("mesh.journal.thread",),
        ("mesh.database.thread", "mesh.journal"),
        ("asyncio", *HEAVY, "time", "logging"),
    ),
    Layer(
        ("mesh.journal",),
        ("mesh.errors", "mesh.wire.blocks", "mesh.wire.durable_frames", "mesh.database", "mesh.journal"),
        ("asyncio", "threading", "time", "logging", *(name for name in HEAVY if name != "apsw")),
    ),
    Layer(
        tuple(f"mesh.outbox.{name}" for name in PURE_OUTBOX),
        tuple(f"mesh.outbox.{name}" for name in PURE_OUTBOX),
        pure=True,
    ),
    Layer(
        ("mesh.outbox.background",),
        ("mesh.errors", "mesh.database.background", "mesh.outbox"),
        (*HEAVY, "threading", "time", "logging"),
    ),
    Layer(
        ("mesh.outbox.thread",),
        ("mesh.database.thread", "mesh.outbox"),
        ("asyncio", *HEAVY, "time", "logging"),
    ),
    Layer(
        ("mesh.outbox",),
        (
            "mesh.errors",
            "mesh.wire.blocks",
            "mesh.wire.session_opening",
            "mesh.database",
            "mesh.outbox",
        ),
        ("asyncio", "threading", "time", "logging", *(name for name in HEAVY if name != "apsw")),
    ),
    Layer(
        ("mesh.storage", "mesh.environment"),
        ("mesh.errors", "mesh.storage", "mesh.journal", "mesh.outbox"),
    ),
    Layer(
        ("mesh.cluster",),
        (
            "mesh.errors",
            "mesh.environment",
            "mesh.listen",
            "mesh.wire",
            "mesh.topics",
            "mesh.cluster",
            "protocols",
        ),
    ),
    Layer(("mesh.news",), ("mesh.printable",), pure=True),
    Layer(("mesh.picture",), ("mesh.news", "mesh.printable"), pure=True),
    Layer(("mesh.trouble",), ("mesh.picture", "mesh.printable"), pure=True),
    Layer(
        tuple(f"mesh.http.{name}" for name in PURE_HTTP),
        (
            "mesh.dataplane.counters",
            "mesh.listen",
            "mesh.news",
            "mesh.picture",
            "mesh.printable",
            "mesh.trouble",
            *(f"mesh.http.{name}" for name in PURE_HTTP),
        ),
        pure=True,
    ),
    Layer(
        ("mesh.http",),
        ("mesh.errors", "mesh.listen", "mesh.logs", "mesh.printable", "mesh.http", "protocols"),
    ),
    Layer(
        ("mesh.broker",),
        (
            "mesh.errors",
            "mesh.http",
            "mesh.limits",
            "mesh.logs",
            "mesh.printable",
            "mesh.environment",
            "mesh.eventlog",
            "mesh.storage",
            "mesh.listen",
            "mesh.wire",
            "mesh.topics",
            "mesh.journal.port",
            "mesh.journal.records",
            "mesh.access",
            "mesh.dataplane",
            "mesh.cluster",
            "mesh.broker",
            "protocols",
        ),
    ),
    # Clients and brokers share only the session's frames.
    Layer(
        tuple(f"mesh.clients.{name}" for name in PURE_CLIENTS),
        (
            "mesh.errors",
            "mesh.printable",
            "mesh.topics",
            "mesh.wire.blocks",
            "mesh.wire.capabilities",
            "mesh.wire.durable_frames",
            "mesh.wire.fields",
            "mesh.wire.session_frames",
            "mesh.wire.session_opening",
            *ACCESS_OF_CLIENTS,
            "mesh.outbox.draining",
            "mesh.outbox.records",
            "protocols.dial_schedule",
            *(f"mesh.clients.{name}" for name in PURE_CLIENTS),
        ),
        pure=True,
    ),
    Layer(
        ("mesh.clients",),
        (
            "mesh.listen",
            "mesh.errors",
            "mesh.printable",
            "mesh.wire.blocks",
            "mesh.wire.capabilities",
            "mesh.wire.durable_frames",
            "mesh.wire.fields",
            "mesh.wire.session_frames",
            "mesh.wire.session_opening",
            "mesh.environment",
            "mesh.logs",
            *ACCESS_OF_CLIENTS,
            "mesh.outbox.draining",
            "mesh.outbox.port",
            "mesh.outbox.records",
            "mesh.clients",
            "protocols",
        ),
    ),
    Layer(
        ("mesh.console",),
        ("mesh.console", "mesh.clients", "mesh.errors", "mesh.news", "mesh.picture", "mesh.trouble", "mesh"),
        ("pyspark", "pandas", "pynng", "cyclopts"),
    ),
    Layer(("mesh.analysis",), ("mesh.analysis", "mesh.errors", "mesh.eventlog"), ("pynng", "zmq")),
    Layer(("mesh.bench.analysis",), ("mesh", "protocols"), ("pandas",)),
    Layer(("mesh.bench.simulate",), ("mesh", "protocols", "simulations"), ("pyspark", "pandas")),
    Layer(("mesh.bench",), ("mesh", "protocols"), ("pyspark", "pandas")),
    Layer(("mesh.cli", "mesh.__main__", "mesh.demo"), ("mesh", "protocols", "simulations"), ()),
    Layer(("mesh",), ("mesh",)),
    Layer(("simulations.kernel.scheduler", "simulations.kernel.history"), ()),
    Layer(
        ("simulations.kernel.network",),
        ("simulations.kernel.network", "simulations.kernel.scheduler", "simulations.kernel.history"),
    ),
    Layer(
        ("simulations.kernel.sqlite_files",),
        ("simulations.kernel",),
        tuple(name for name in HEAVY if name != "apsw"),
    ),
    Layer(("simulations.kernel.journal",), ("simulations.kernel", "mesh.journal")),
    Layer(("simulations.kernel.outbox",), ("simulations.kernel", "mesh.outbox")),
    Layer(("simulations.kernel",), ("simulations.kernel", "mesh.errors", "mesh.storage")),
    # A world is told what to do to itself, and faults are done to a world: these two name each other.
    Layer(("simulations.world",), ("simulations.kernel", "simulations.faults", "simulations.world")),
    Layer(
        ("simulations.faults",),
        (
            "simulations.kernel",
            "simulations.faults",
            "simulations.world",
            "mesh",
            "protocols",
        ),
    ),
    Layer(("simulations.scenario",), ("simulations.kernel", "simulations.faults")),
    Layer(
        ("simulations.evidence",),
        (
            "simulations.kernel",
            "simulations.faults",
            "simulations.world",
            "simulations.scenario",
            "simulations.evidence",
            "mesh",
            "protocols",
        ),
    ),
    Layer(
        ("simulations.invariants",),
        (
            "simulations.faults",
            "simulations.scenario",
            "simulations.evidence",
            "simulations.invariants",
            "mesh",
        ),
    ),
    Layer(
        ("simulations.scenarios",),
        (
            "mesh.spelling",
            "simulations.faults",
            "simulations.scenario",
            "simulations.evidence.measuring",
            "simulations.invariants",
            "simulations.scenarios",
        ),
    ),
    Layer(
        ("simulations.programs",),
        (
            "simulations.kernel",
            "simulations.world",
            "simulations.evidence.ledger",
            "simulations.programs",
            "mesh",
            "protocols",
        ),
    ),
    Layer(
        ("simulations.runs",),
        (
            "simulations.kernel",
            "simulations.world",
            "simulations.faults",
            "simulations.scenario",
            "simulations.evidence",
            "simulations.invariants",
            "simulations.scenarios",
            "simulations.programs",
            "simulations.runs",
            "mesh",
        ),
    ),
    Layer(
        ("simulations.meshes",),
        (
            "simulations.kernel.scheduler",
            "simulations.world",
            "simulations.faults",
            "simulations.scenario",
            "simulations.evidence",
            "simulations.invariants",
            "simulations.programs",
            "simulations.runs.wholeness",
            "mesh",
        ),
    ),
    Layer(
        ("simulations.strategies",),
        ("simulations.faults", "simulations.scenario", "simulations.scenarios"),
    ),
    # The cores alone run in no world, and leave no evidence.
    Layer(
        ("simulations.cores",),
        (
            "simulations.kernel",
            "simulations.faults",
            "simulations.scenario",
            "simulations.scenarios",
            "simulations.cores",
            *PURE_MESH,
        ),
    ),
    Layer(
        ("simulations.pages",),
        (
            "simulations.faults",
            "simulations.scenario",
            "simulations.invariants",
            "simulations.scenarios",
            "simulations.runs",
            "simulations.cores",
            "simulations.pages",
        ),
    ),
    Layer(
        ("simulations.cli",),
        (
            "simulations.faults",
            "simulations.scenario",
            "simulations.invariants",
            "simulations.scenarios",
            "simulations.runs",
            "simulations.cores",
            "simulations.cli",
            "mesh.cli.documents",
            "mesh.cli.exits",
        ),
        ("pyspark", "pandas", "pynng", "zmq"),
    ),
    Layer(("pytest_mangrove",), ("simulations.kernel", "simulations.world")),
    Layer(("simulations",), ("simulations",)),
)

# The only libraries that `protocols` may use beyond the standard library, each in the modules named.
LIBRARIES = {
    "protocols.nng.binding": "pynng",
    "protocols.wire.upgrade": "wsproto",
    "protocols.wire.websocket": "wsproto",
}

# Only these may ask the world for a clock, a number or a name. All others are given one, since otherwise they
# could not run in the simulator.
WORLDLY = (
    "mesh.environment",
    "mesh.storage",
    "mesh.cli",
    "mesh.demo",
    "mesh.console",
    "mesh.analysis",
    "mesh.bench",
    "mesh.clients.blocking_client",
    "mesh.clients.blocking_moving",
    "mesh.clients.blocking_outbox",
    "mesh.clients.blocking_outbox_soon",
    "mesh.clients.blocking_publishing_soon",
    "mesh.clients.blocking_session",
    "mesh.clients.blocking_subscription",
    "mesh.clients.blocking_work",
    "protocols.blocking.core",
    "protocols.blocking.dialling",
    "protocols.blocking.io_thread",
    "protocols.blocking.listening",
    "protocols.blocking.sockets",
)
WORLD_CALLS = re.compile(
    r"^(time\.(time|time_ns|monotonic|monotonic_ns|perf_counter|perf_counter_ns|sleep)"
    r"|random\.[a-z]\w*|os\.urandom|uuid\.\w+|secrets\.\w+|datetime\.datetime\.(now|utcnow)|datetime\.(now|utcnow))$"
)


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    found = {path.stem: path for path in ROOT.glob("*.py")}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def covers(prefix: str, name: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def layer_of(name: str) -> Layer | None:
    """The row with the longest matching name; a bare package row covers only its ``__init__``."""
    best: tuple[int, Layer] | None = None
    for layer in LAYERS:
        for prefix in layer.modules:
            matches = name == prefix if prefix in PACKAGES else covers(prefix, name)
            if matches and (best is None or len(prefix) > best[0]):
                best = (len(prefix), layer)
    return best[1] if best else None


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imports(path: Path, name: str) -> Iterator[tuple[str, int]]:
    """Absolute names that a module imports, with lines. ``from a import b`` yields ``a.b`` if that is a
    module."""
    known = modules()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield (full if full in known else base), node.lineno


def calls(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that are called, as written, resolved through ``from x import y``."""
    froms = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module and not node.level
        for alias in node.names
    }
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            written = ast.unparse(node.func)
            first, dot, rest = written.partition(".")
            yield froms.get(first, first) + dot + rest, node.lineno


def is_declaration(node: ast.AST) -> bool:
    """True for a method of a `typing.Protocol`, whose body is a docstring or ``...``."""
    return isinstance(node, ast.AsyncFunctionDef) and all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        for statement in node.body
    )


def where(path: Path, line: int) -> str:
    return f"{path.relative_to(ROOT)}:{line}"


def test_every_module_has_a_place_in_the_table() -> None:
    homeless = [name for name in modules() if layer_of(name) is None]
    assert not homeless, f"no layer covers {homeless}; add them to LAYERS where they belong"


def test_imports_point_down() -> None:
    wrong = []
    for name, path in modules().items():
        layer = layer_of(name)
        if layer is None:
            continue
        for imported, line in imports(path, name):
            if imported.partition(".")[0] in (*PACKAGES, "tests"):
                down = any(covers(allowed, imported) for allowed in layer.may_import)
                if not down and imported != name:
                    wrong.append(f"{where(path, line)}: {name} may not import {imported}")
    assert not wrong, "\n".join(wrong)


def test_modules_import_no_forbidden_packages() -> None:
    wrong = []
    for name, path in modules().items():
        layer = layer_of(name)
        for imported, line in imports(path, name):
            if layer and imported.partition(".")[0] in layer.may_not_import:
                wrong.append(f"{where(path, line)}: {name} may not import {imported}")
    assert not wrong, "\n".join(wrong)


def test_protocols_needs_nothing_but_the_standard_library() -> None:
    wrong = []
    for name, path in modules().items():
        if covers("protocols", name):
            for imported, line in imports(path, name):
                top = imported.partition(".")[0]
                allowed = top in ("protocols", LIBRARIES.get(name)) or top in sys.stdlib_module_names
                if not allowed:
                    wrong.append(f"{where(path, line)}: {imported}")
    assert not wrong, "\n".join(wrong)


def test_pure_modules_touch_no_loop_clock_file_or_thread() -> None:
    wrong = []
    for name, path in modules().items():
        layer = layer_of(name)
        if layer is None or not layer.pure:
            continue
        wrong += [
            f"{where(path, line)}: {name} is pure and imports {imported}"
            for imported, line in imports(path, name)
            if imported.partition(".")[0] in IMPURE
        ]
        wrong += [
            f"{where(path, node.lineno)}: {name} is pure and has an `{type(node).__name__}`"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
            and not is_declaration(node)
        ]
    assert not wrong, "\n".join(wrong)


def test_clocks_and_randomness_are_injected() -> None:
    """Code inside a broker runs in the simulator too, so it may not ask the world for time or chance."""
    wrong = []
    for name, path in modules().items():
        if any(covers(worldly, name) for worldly in WORLDLY):
            continue
        for called, line in calls(path):
            if WORLD_CALLS.match(called):
                # The simulator measures only how long a run took in real time.
                if covers("simulations", name) and called.startswith("time.perf_counter"):
                    continue
                wrong.append(f"{where(path, line)}: {called}()")
    assert not wrong, "\n".join(wrong)


def test_init_files_only_re_export() -> None:
    wrong = []
    for path in modules().values():
        if path.name != "__init__.py":
            continue
        for number, node in enumerate(tree(path).body):
            docstring = number == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = (
                [ast.unparse(target) for target in node.targets]
                if isinstance(node, ast.Assign)
                else [ast.unparse(node.target)]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            dunder = bool(names) and all(re.fullmatch(r"__\w+__|_MODULES", target) for target in names)
            typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            lazy = isinstance(node, ast.FunctionDef) and node.name == "__getattr__"  # PEP 562
            imports = isinstance(node, ast.Import | ast.ImportFrom)
            if not (docstring or dunder or typing or lazy or imports):
                wrong.append(f"{where(path, node.lineno)}: {ast.unparse(node).splitlines()[0]}")
    assert not wrong, "code in __init__.py:\n" + "\n".join(wrong)


@pytest.mark.parametrize("statement", ["from mesh import *; import protocols", "import mesh.cli.app"])
def test_import_loads_nothing_heavy(statement: str) -> None:
    """Rich, Spark, WebSocket and the second engine are loaded by the commands that use them."""
    forbidden = ["rich", "pyspark", "pandas", "pynng", "networkx", "zmq", "uvloop", "wsproto", "apsw"]
    forbidden += ["h11", "prometheus_client"]
    if "cli" not in statement:
        forbidden.append("cyclopts")
    else:
        forbidden.remove("rich")  # cyclopts draws its help with it
    code = f"{statement}\nimport sys\nprint([m for m in {forbidden!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"


def test_tracked_files_name_no_package_registry() -> None:
    """Dependencies are pinned by version; the installer decides where to get them."""
    hosts = [
        ".".join(parts)
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("registry", "npmjs"),
            ("deb", "debian", "org"),
        )
    ]
    ran = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=30)
    if ran.returncode != 0:
        pytest.skip("not a git checkout")
    wrong = []
    for name in ran.stdout.decode().split("\0"):
        path = ROOT / name
        if name and path.is_file():
            text = path.read_bytes()
            wrong += [f"{name} names {host}" for host in hosts if host.encode() in text]
    assert not wrong, "\n".join(wrong)

"""The files for Prometheus and Grafana name metrics that exist, and alert when they should."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from mesh.http.metrics import METRICS

FOLDER = Path(__file__).parents[2] / "docs/deploy"
RULES = FOLDER / "mangrove.rules.yml"
GUIDE = FOLDER.parent / "guides/monitoring.md"
LABELS = {metric.name: set(metric.labels) for metric in METRICS}
FOREIGN = {"job", "instance", "le", "datasource"}
promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    """The part of Grafana's schema that this dashboard uses. Anything else is a misspelling."""


class Source(Strict):
    type: Literal["prometheus"]
    uid: Literal["${datasource}"]


class Grid(Strict):
    h: int
    w: int
    x: int
    y: int


class Target(Strict):
    refId: str
    datasource: Source
    expr: str
    legendFormat: str


class FieldConfig(Strict):
    defaults: dict[str, Any]
    overrides: list[Any]


class Row(Strict, tag="row"):
    id: int
    title: str
    collapsed: bool
    gridPos: Grid
    panels: list[Any]


class Drawn(Strict):
    id: int
    title: str
    description: str
    datasource: Source
    gridPos: Grid
    fieldConfig: FieldConfig
    targets: list[Target]
    options: dict[str, Any]


class Stat(Drawn, tag="stat"):
    pass


class TimeSeries(Drawn, tag="timeseries"):
    pass


class Timeline(Drawn, tag="state-timeline"):
    pass


class Variable(Strict):
    name: str
    type: Literal["datasource", "query"]
    query: str | dict[str, str]
    label: str
    datasource: Source | None = None
    refresh: int | None = None
    multi: bool = False
    includeAll: bool = False
    current: dict[str, str] | None = None


class Templating(Strict):
    variables: list[Variable] = msgspec.field(name="list")


class Dashboard(Strict):
    uid: str
    title: str
    tags: list[str]
    schemaVersion: int
    version: int
    editable: bool
    timezone: str
    refresh: str
    time: dict[Literal["from", "to"], str]
    templating: Templating
    annotations: dict[str, list[Any]]
    panels: list[Row | Stat | TimeSeries | Timeline]


def dashboard() -> Dashboard:
    return msgspec.json.decode((FOLDER / "grafana.json").read_bytes(), type=Dashboard)


def drawn() -> list[Stat | TimeSeries | Timeline]:
    return [panel for panel in dashboard().panels if not isinstance(panel, Row)]


def rule_expressions() -> list[str]:
    return re.findall(r"^ +expr: (.*)$", RULES.read_text(), re.MULTILINE)


def check_names(expression: str) -> None:
    """Every metric of an expression exists, and has the labels that it is asked for."""
    names = re.findall(r"\bmangrove_\w+", expression)
    assert names or "up" in expression, expression
    known = set(FOREIGN)
    for name in names:
        assert name in LABELS, f"{name} in {expression}"
        known |= LABELS[name]
    for labels in re.findall(r"\b(?:by|without|ignoring|on) \(([^)]*)\)", expression):
        assert {each.strip() for each in labels.split(",")} <= known, expression
    for labels in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*=~?", labels)) <= known, expression


def test_the_dashboard_is_readable_by_grafana() -> None:
    found = dashboard()
    panels = found.panels
    assert len({panel.id for panel in panels}) == len(panels)
    assert found.schemaVersion >= 39 and {each.name for each in found.templating.variables} == {
        "datasource",
        "job",
        "instance",
    }
    for panel in drawn():
        assert panel.targets and "unit" in panel.fieldConfig.defaults
        for target in panel.targets:
            check_names(target.expr)
            for label in re.findall(r"\{\{(\w+)\}\}", target.legendFormat):
                check_names(f"x by ({label}) {target.expr}")


def test_no_panel_lies_on_another() -> None:
    for one, other in combinations((panel.gridPos for panel in dashboard().panels), 2):
        beside = one.x + one.w <= other.x or other.x + other.w <= one.x
        assert beside or one.y + one.h <= other.y or other.y + other.h <= one.y
        assert one.x + one.w <= 24


def test_alerts_name_metrics_that_exist_and_the_guide_names_all_alerts() -> None:
    expressions = rule_expressions()
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) == len(set(alerts)) == len(expressions)
    for expression in expressions:
        check_names(expression)
    assert [alert for alert in alerts if f"`{alert}`" not in GUIDE.read_text()] == []
    assert RULES.read_text().count("summary: ") == RULES.read_text().count("action: ") == len(alerts)


@promtool
def test_prometheus_accepts_the_rules_the_configuration_and_every_expression_of_the_dashboard(
    tmp_path: Path,
) -> None:
    variables = {"$job": "mangrove", "$instance": ".*", "$__rate_interval": "1m"}
    rules = []
    for number, expression in enumerate(target.expr for panel in drawn() for target in panel.targets):
        for name, value in variables.items():
            expression = expression.replace(name, value)
        rules.append(f"- record: panel_{number}\n  expr: {json.dumps(expression)}\n")
    text = "groups:\n- name: panels\n  rules:\n" + "".join(
        "  " + line + "\n" for rule in rules for line in rule.splitlines()
    )
    (tmp_path / "panels.yml").write_text(text)
    shutil.copy(RULES, tmp_path)
    password = tmp_path / "password"
    password.write_text("x")
    config = (FOLDER / "prometheus.yml").read_text().replace("/etc/mangrove/http-password", str(password))
    (tmp_path / "prometheus.yml").write_text(config)
    for command in (("rules", "panels.yml"), ("rules", RULES.name), ("config", "prometheus.yml")):
        ran = subprocess.run(
            ["promtool", "check", *command], cwd=tmp_path, capture_output=True, text=True, timeout=240
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr


EXPIRY = "mangrove_certificate_expiry_timestamp_seconds"
CASES: dict[str, tuple[dict[str, str], int, int]] = {
    # alert: (series and their values a minute, minute at which it fires, minute before which it does not)
    "MangroveBrokerDown": ({'up{job="mangrove",instance="a"}': "1x3 0x10"}, 6, 3),
    "MangroveMemberDead": ({'mangrove_members{job="mangrove",instance="a",state="dead"}': "0x3 1x10"}, 7, 3),
    "MangroveIsolated": (
        {'mangrove_broker_state{job="mangrove",instance="a",state="isolated"}': "0x3 1x10"},
        6,
        3,
    ),
    "MangroveSplit": (
        {
            'mangrove_members{job="mangrove",instance="a",state="alive"}': "3x20",
            'mangrove_members{job="mangrove",instance="b",state="alive"}': "3x3 2x17",
        },
        12,
        5,
    ),
    "MangroveDropping": (
        {'mangrove_messages_dropped_total{job="mangrove",instance="a",reason="slow_link"}': "0x3 0+60x10"},
        8,
        3,
    ),
    "MangroveLagging": (
        {'mangrove_event_loop_lateness_max_seconds{job="mangrove",instance="a"}': "0.01x3 0.5x10"},
        10,
        7,
    ),
    "MangroveQueueWithoutConsumer": (
        {
            'mangrove_queue_waiting_messages{job="mangrove",instance="a",queue="mail"}': "5x20",
            'mangrove_queue_consumers{job="mangrove",instance="a",queue="mail"}': "1x3 0x17",
        },
        15,
        8,
    ),
    "MangroveCertificateExpires": (
        {EXPIRY + '{job="mangrove",instance="a",address="x"}': "1210000x20"},
        10,
        5,
    ),
}


@promtool
def test_alerts_fire_when_they_should_and_not_before(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    tests = []
    for alert, (series, fires, silent) in CASES.items():
        lines = [f"      - series: '{name}'\n        values: '{values}'" for name, values in series.items()]
        text = RULES.read_text()
        assert f"alert: {alert}\n" in text
        tests.append(
            "  - interval: 1m\n    input_series:\n" + "\n".join(lines) + "\n    promql_expr_test:\n"
            f'      - expr: count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)\n'
            f"        eval_time: {silent}m\n        exp_samples: [{{value: 0}}]\n"
            f'      - expr: count(ALERTS{{alertname="{alert}",alertstate="firing"}})\n'
            f"        eval_time: {fires}m\n        exp_samples: [{{value: 1}}]\n"
        )
    file = tmp_path / "test.yml"
    file.write_text(f"rule_files: [{RULES.name}]\nevaluation_interval: 1m\ntests:\n" + "".join(tests))
    ran = subprocess.run(
        ["promtool", "test", "rules", file.name], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr

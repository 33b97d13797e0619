"""What installs the server: the unit of systemd, the manifests of Kubernetes, the compose file, the image."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from mediaserver.settings import ServerSettings
from tests.support.paths import ROOT

UNIT = ROOT / "config" / "systemd" / "mediaserver.service"
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((ROOT / "config" / "kubernetes" / "mediaserver.yaml").read_text())
)
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
DOCKERFILE = (ROOT / "Dockerfile").read_text()
DRAIN_S = ServerSettings.model_fields["drain_s"].default


def kind(name: str) -> dict[str, Any]:
    """The manifest of that kind."""
    (found,) = [each for each in MANIFESTS if each["kind"] == name]
    return found


# systemd ----------------------------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with a program that is there."""
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/mediaserver/bin/mediaserver", "/bin/true"))
    return copy


def analysed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["systemd-analyze", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_systemd_takes_the_unit(unit: Path) -> None:
    done = analysed("verify", unit)
    told = [line for line in done.stderr.splitlines() if UNIT.name in line]
    assert (done.returncode, told) == (0, [])


def test_the_unit_is_hardened(unit: Path) -> None:
    """Exposure of 2.0 of 10 at most: the network, and ports below 1024, are what the server is for."""
    done = analysed("security", "--offline=true", "--threshold=20", unit)
    assert done.returncode == 0, done.stdout


def test_the_unit_lets_calls_end() -> None:
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)
    assert int(stop_s) > DRAIN_S


# Kubernetes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", MANIFESTS, ids=[each["kind"] for each in MANIFESTS])
def test_kubernetes_takes_the_manifests(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.34", strict=True)


def test_a_mistake_in_a_manifest_is_found() -> None:
    pods = kind("StatefulSet")["spec"] | {"replica": 2}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(kind("StatefulSet") | {"spec": pods}, "1.34", strict=True)


def test_pods_drain_are_spread_and_go_one_by_one() -> None:
    template = kind("StatefulSet")["spec"]["template"]
    pod, labels = template["spec"], template["metadata"]["labels"]
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"]
    assert pod["terminationGracePeriodSeconds"] > DRAIN_S + 5
    (budget, spread) = kind("PodDisruptionBudget")["spec"], pod["topologySpreadConstraints"]
    assert budget["maxUnavailable"] == 1
    selectors = [budget["selector"], *(each["labelSelector"] for each in spread)]
    assert [each["matchLabels"] for each in selectors] == [labels, labels]
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {"/var/lib/mediaserver", "/tmp"} <= mounts
    assert container["securityContext"]["readOnlyRootFilesystem"]


# Containers -------------------------------------------------------------------------------------------------


def test_the_image_is_not_roots_and_is_asked_how_it_does() -> None:
    last = DOCKERFILE.rpartition("FROM ")[2]
    user = re.findall(r"^USER (\d+):\d+$", last, re.MULTILINE)
    assert user == [str(kind("StatefulSet")["spec"]["template"]["spec"]["securityContext"]["runAsUser"])]
    assert "HEALTHCHECK" in last
    assert "mediaserver compile" in DOCKERFILE


def test_what_the_image_is_made_of_is_there_and_not_left_out() -> None:
    let_in = set(re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE))
    copied = {
        word
        for line in re.findall(r"^COPY (?!--)(.+)$", DOCKERFILE, re.MULTILINE)
        for word in line.split()[:-1]
    }
    assert {word.partition("/")[0] for word in copied} <= let_in
    assert all((ROOT / word).exists() for word in copied | let_in)


def test_the_compose_file_mounts_what_there_is_and_lets_calls_end() -> None:
    services = COMPOSE["services"]
    sources = {
        volume.split(":")[0]
        for service in services.values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    }
    assert {each for each in sources if not (ROOT / each).exists()} == {
        "./mediaserver.toml",
        "./turn.crt",
        "./turn.key",
    }
    server = services["mediaserver"]
    assert server["read_only"] is True
    assert server["user"] in DOCKERFILE
    minutes = re.fullmatch(r"(\d+)m", server["stop_grace_period"])
    assert minutes is not None
    assert int(minutes[1]) * 60 > DRAIN_S

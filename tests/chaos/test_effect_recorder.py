"""What the recorder sees: the path that was meant, however it was named."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

SEEN = """
import os, shutil, sys, tempfile
from pathlib import Path
from ninelives.chaos.ledger import Ledger
from ninelives.chaos.process.effect_recorder import EffectRecorder

home = Path(sys.argv[1])
os.chdir(home / "tree")
sys.path.insert(0, str(home / "tree"))
recorder = EffectRecorder(Ledger(home / "ledger", 1), home / "tree", Path("/theirs"))
recorder.install()
import agent
recorder.is_ready = True
agent.act()
"""


def seen(home: Path, *lines: str) -> list[tuple[str, str]]:
    """Return what is seen of some lines of a user's code, in a tree with two files in it."""
    tree = home / "tree"
    (tree / "old").mkdir(parents=True)
    for name in ("conf.json", "old/conf.json"):
        (tree / name).write_text("{}")
    body = "".join(f"    {line}\n" for line in lines)
    (tree / "agent.py").write_text(f"import os, shutil, tempfile\n\ndef act():\n{body}")
    subprocess.run([sys.executable, "-c", SEEN, str(home)], check=True, timeout=60)
    told = [json.loads(line) for line in (home / "ledger").read_text().splitlines()]
    return [(one["kind"], one["target"]) for one in told if one["what"] == "effect"]


def test_a_temporary_directory_that_is_removed_is_no_file_of_the_tree(tmp_path: Path) -> None:
    assert (
        seen(
            tmp_path,
            "with tempfile.TemporaryDirectory() as there:",
            "    os.makedirs(f'{there}/deep')",
            "    for name in ('conf.json', 'deep/conf.json'):",
            "        open(f'{there}/{name}', 'w').close()",
        )
        == []
    )
    assert (tmp_path / "tree" / "conf.json").exists()


@pytest.mark.skipif(not shutil.rmtree.avoids_symlink_attacks, reason="it does so by names only")
def test_a_directory_of_the_tree_is_removed_where_it_is(tmp_path: Path) -> None:
    assert seen(tmp_path, "shutil.rmtree('old')") == [
        ("remove", "/theirs/old/conf.json"),
        ("remove", "/theirs/old"),
    ]


def test_a_name_in_an_open_directory_is_seen_in_that_directory(tmp_path: Path) -> None:
    assert seen(
        tmp_path,
        "fd = os.open('old', os.O_RDONLY)",
        "os.mkdir('made', dir_fd=fd)",
        "os.rename('conf.json', 'moved', dst_dir_fd=fd)",
        "os.link('old/conf.json', 'hard', dst_dir_fd=fd)",
        "os.symlink('nowhere', 'soft', dir_fd=fd)",
        "os.unlink('hard', dir_fd=fd)",
        "os.rmdir('made', dir_fd=fd)",
    ) == [
        ("make directory", "/theirs/old/made"),
        ("rename", "/theirs/old/moved"),
        ("link", "/theirs/old/hard"),
        ("link", "/theirs/old/soft"),
        ("remove", "/theirs/old/hard"),
        ("remove", "/theirs/old/made"),
    ]


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path: Path) -> None:
    assert seen(tmp_path, "os.symlink('../conf.json', 'old/link')", "os.unlink('old/link')") == [
        ("link", "/theirs/old/link"),
        ("remove", "/theirs/old/link"),
    ]


def test_a_question_outside_a_step_is_no_effect(tmp_path: Path) -> None:
    ask = "http.client.HTTPConnection('127.0.0.1', {port}).request('{method}', '/')"
    with socket.create_server(("127.0.0.1", 0)) as shop:
        port = shop.getsockname()[1]
        lines = [ask.format(port=port, method=method) for method in ("GET", "POST")]
        assert seen(tmp_path, "import http.client", *lines) == [("request", f"POST http://127.0.0.1:{port}/")]

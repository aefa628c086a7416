"""The configuration file, the command, mail, apprise, and a notifier beside `up`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import closing
from email import message_from_bytes
from email.policy import default
from pathlib import Path

import pytest

from ninelives.core.errors import UsageError
from ninelives.ops.notify.config import read_settings
from tests.clocks import SteppingClock
from tests.crash import stores
from tests.notify.receivers import TRICKLE_BODY, MailServer, Receiver
from tests.notify.scene import Scene, arguments, configure, eventually, notifier, webhook

GOOD = webhook("ops", "https://user:hunter2@example.com/hook")
URL = "https://example.com/topsecret"


@pytest.mark.parametrize("secret", ["whsec_", "whsec_abc", "whsec_hunter2-hunter2=", "whsec_hunter\u00e9"])
def test_a_secret_that_no_receiver_would_read_in_the_same_way_is_refused(secret: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"channel\[0\]\.secret_env: after whsec_") as caught:
        read_settings(configure(tmp_path, GOOD), {"HOOK_SECRET": secret})
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"channel: there is no channel"),
        ("[[channel]\n", r"is not TOML"),
        (f"deep = {'[' * 9_000}{']' * 9_000}", r"is not TOML: RecursionError"),
        (GOOD + "[[chanel]]\n", r"chanel: there is no such field"),
        (GOOD + "colour = 1\n", r"channel\[0\]\.colour: there is no such field"),
        (GOOD + 'kinds = ["approval", "aproval"]\n', r"channel\[0\]\.kinds\[1\]: there is no kind 'aproval'"),
        (GOOD + 'kinds = "approval"\n', r"channel\[0\]\.kinds: it is not a list"),
        (GOOD + 'kinds = [["approval"]]\n', r"channel\[0\]\.kinds\[0\]: it is not a text"),
        (GOOD + "agents = [1]\n", r"channel\[0\]\.agents\[0\]: it is not a text"),
        (GOOD + "labels = {team = 1}\n", r"channel\[0\]\.labels\.team: it is not a text"),
        (GOOD + 'min_severity = "high"\n', r"channel\[0\]\.min_severity: there is no severity 'high'"),
        (GOOD + 'remind = "soon"\n', r"channel\[0\]\.remind: 'soon' is not a time"),
        (GOOD + 'then = ["lead"]\n', r"channel\[0\]\.then: it needs remind"),
        (GOOD + 'remind = "1h"\nthen = ["lead"]\n', r"channel\[0\]\.then\[0\]: there is no other channel"),
        (GOOD + 'timeout = "9h"\n', r"channel\[0\]\.timeout: 32400 s"),
        (GOOD + 'type = "smtp"\n', r"channel\[0\]\.type: 'smtp' does not fit"),
        (GOOD + GOOD, r"channel\[1\]\.name: 'ops' is used twice"),
        (GOOD.replace("HOOK_SECRET", "NONE"), r"channel\[0\]\.secret_env: the environment has no 'NONE'"),
        (GOOD.replace("ops", "O p s"), r"channel\[0\]\.name: 'O p s' is not a name"),
        (f'[[channel]]\nname = "a"\nurl = "{URL}"\n', r"channel\[0\]\.secret_env: a webhook is signed"),
        ('[[channel]]\nname = "a"\nurl = "topsecret"\n', r"channel\[0\]\.url: it is not a URL"),
        ('[[channel]]\nname = "a"\n', r"channel\[0\]\.url: give either url or url_env"),
        ('dashboard_url = "x"\n' + GOOD, r"dashboard_url: it is not an address"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_and_no_secret_is(text: str, said: str, tmp_path: Path) -> None:
    path = configure(tmp_path, text)
    with pytest.raises(UsageError, match=said) as caught:
        read_settings(path, {"HOOK_SECRET": "hunter2"})
    assert str(path) in str(caught.value)
    assert not re.search("hunter2|topsecret", str(caught.value))


def test_settings_do_not_show_secrets(tmp_path: Path) -> None:
    found = read_settings(configure(tmp_path, GOOD), {"HOOK_SECRET": "between us"})
    assert not re.search("hunter2|between|example", repr(found))


def test_mail_has_one_subject_and_an_id_of_its_own(
    scene: Scene, clock: SteppingClock, tmp_path: Path
) -> None:
    server = MailServer()
    url = f"smtp://127.0.0.1:{server.port}/?from=a@example.com&to=b@example.com&to=c@example.com&tls=no"
    text = f'[[channel]]\nname = "mail"\nurl = "{url}"\ntimeout = "1s"\n'
    made = notifier(scene.store, configure(tmp_path, text))
    scene.ask("i1", what="pay?\r\nBcc: evil@example.com\r\n\r\nx", arguments=arguments(who="Zoë"))
    server.code = 550
    assert made.once()["mail"].waiting == 1
    server.code, server.greets = 250, False
    clock.advance(3_600_000)
    assert made.once()["mail"].error == "no answer in time"
    server.greets = True
    clock.advance(3_600_000)
    assert made.once()["mail"].sent == 1
    ((to, text),) = server.mails
    assert [line.partition(":")[2] for line in to] == ["<b@example.com>", "<c@example.com>"]
    mail = message_from_bytes(text.encode(), policy=default)
    assert "Bcc" not in mail
    assert "pay?" in mail["subject"]
    assert mail["message-id"] == "<i1.approval@ninelives.invalid>"
    body = mail.get_content()
    assert '  who = "Zoë"' in body
    assert "$ ninelives approve i1" in body.splitlines()
    server.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise's own
def test_apprise_delivers_to_what_it_knows(
    scene: Scene, clock: SteppingClock, receiver: Receiver, tmp_path: Path
) -> None:
    pytest.importorskip("apprise")
    url = f"json://127.0.0.1:{receiver.port}/"
    made = notifier(scene.store, configure(tmp_path, f'[[channel]]\nname = "json"\nurl = "{url}"\n'))
    scene.ask("i1", what="<b>pay</b>?")
    receiver.answer = lambda number, _headers: (500 if number == 0 else 200, {})
    assert made.once()["json"].waiting == 1
    clock.advance(3_600_000)
    assert made.once()["json"].sent == 1
    sent = json.loads(receiver.requests[-1].body)
    assert sent["type"] == "info"
    assert "$ ninelives approve i1" in sent["message"]
    assert "notice i1.approval" in sent["message"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise's own
def test_an_attempt_by_apprise_ends_in_time_and_follows_no_redirect(
    scene: Scene, clock: SteppingClock, receiver: Receiver, tmp_path: Path
) -> None:
    pytest.importorskip("apprise")
    text = f'[[channel]]\nname = "json"\nurl = "json://127.0.0.1:{receiver.port}/"\ntimeout = "3s"\n'
    made = notifier(scene.store, configure(tmp_path, text))
    scene.ask("i1")
    receiver.answer = lambda _number, _headers: TRICKLE_BODY
    began = time.monotonic()
    assert made.once()["json"].error == "no answer in time"
    assert time.monotonic() - began < 12  # with the start of its process
    clock.advance(3_600_000)
    elsewhere = Receiver()
    receiver.answer = lambda _number, _headers: (307, {"location": elsewhere.url})
    assert made.once()["json"].error == "the service did not take it"
    elsewhere.close()
    assert (len(receiver.requests), elsewhere.requests) == (2, [])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise's own
def test_an_apprise_url_that_it_refuses_is_an_error_without_the_url(scene: Scene, tmp_path: Path) -> None:
    pytest.importorskip("apprise")
    path = configure(tmp_path, '[[channel]]\nname = "x"\nurl = "nosuch://topsecret/"\n')
    with pytest.raises(UsageError, match="apprise does not accept") as caught:
        notifier(scene.store, path)
    assert "topsecret" not in str(caught.value)


def _cli(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HOOK_SECRET": "hunter2", "NINELIVES_STORE": stores.address(home)}
    return subprocess.run(
        [sys.executable, "-m", "ninelives", "notify", "--config", str(home / "notify.toml"), *words],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_the_command_tests_channels_and_reports(receiver: Receiver, tmp_path: Path) -> None:
    configure(tmp_path, webhook("ops", receiver.url) + webhook("away", "http://127.0.0.1:9/topsecret"))
    missing = _cli(tmp_path, "--once")
    assert missing.returncode == 2
    assert "there is no store" in missing.stderr
    with closing(stores.open_at(tmp_path)) as store:
        Scene(store).ask("i1")
    tested = _cli(tmp_path, "--test", "--json")
    assert tested.returncode == 1
    assert [(one["channel"], one["is_sent"]) for one in json.loads(tested.stdout)] == [
        ("ops", True),
        ("away", False),
    ]
    assert receiver.requests[0].data["kind"] == "test"
    once = _cli(tmp_path, "--once")
    assert once.returncode == 1
    assert re.search(r"away +0 +1 .* Connection refused", once.stdout)
    assert receiver.requests[1].data["answers"][0].startswith("ninelives approve i1")
    assert not re.search("topsecret|hunter2", once.stdout + once.stderr + tested.stdout + tested.stderr)


def test_up_keeps_a_notifier_that_reports_at_once_and_is_restarted(
    receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(
        "import ninelives as nl\n@nl.agent\nasync def helper() -> str:\n    return await nl.ask('which?')\n"
    )
    configure(tmp_path, webhook("ops", receiver.url))
    environment = {**os.environ, "HOOK_SECRET": "x", "NINELIVES_STORE": stores.address(tmp_path)}
    command = [sys.executable, "-m", "ninelives"]
    words = ["up", "agent.py", "--processes", "1", "--notify", "notify.toml"]
    with subprocess.Popen([*command, *words], cwd=tmp_path, env=environment) as up:
        try:
            start = [*command, "run", "agent.py:helper", "--no-wait", "--id"]
            subprocess.run([*start, "r1"], cwd=tmp_path, env=environment, check=True, timeout=60)
            eventually(lambda: len(receiver.counts()) == 1)
            children = Path(f"/proc/{up.pid}/task/{up.pid}/children").read_text().split()
            ours = [pid for pid in children if b"notify" in Path(f"/proc/{pid}/cmdline").read_bytes()]
            os.kill(int(ours[0]), signal.SIGKILL)
            subprocess.run([*start, "r2"], cwd=tmp_path, env=environment, check=True, timeout=60)
            eventually(lambda: len(receiver.counts()) == 2, 40)
            # Killed between a delivery and its record, it delivers again, under the same key.
            assert list(receiver.counts().values()) in ([1, 1], [2, 1])
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(30)

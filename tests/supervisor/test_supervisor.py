"""Workers are restarted, hangs killed, strays swept; the supervisor may be killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from ninelives.core.model.run import State
from ninelives.core.model.session import Cause, Fate
from tests.supervisor.fleets import Home, Up, is_alive, wait_until


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_killed_worker_is_restarted_and_its_run_goes_on(home: Home) -> None:
    with Up(home) as up:
        (first,) = up.ready()
        home.start("r", agent="held")
        wait_until(lambda: home.noted("r", "second"), "the run never came to its second step")
        said = Path(f"/proc/{first}/cmdline").read_bytes()
        assert b"sqlite" not in said, "the store's URL, which may hold a password, is for all to read"
        os.kill(first, signal.SIGKILL)
        _, second = up.ready(2)
        wait_until(lambda: len(home.noted("r", "second")) == 2, "the run was not taken over")
        home.go()
        home.completed("r")
        assert up.stop() == 0
    assert "killed by SIGKILL" in up.log
    assert [line[2] for line in home.noted("r", "first")] == [str(first)]  # recorded: never executed again
    assert home.noted("r", "third")[0][2] == str(second)


def test_a_worker_that_had_lost_its_lease_is_proved_gone_when_it_dies(home: Home) -> None:
    with Up(home) as up, closing(home.open()) as store:
        (pid,) = up.ready()
        wait_until(lambda: any(one.pid == pid for one in store.list_sessions()), "no session")
        (session,) = [one.id for one in store.list_sessions() if one.pid == pid]
        os.kill(pid, signal.SIGSTOP)
        store.end_sessions([session], Cause.EXPIRED)  # as anybody does when its lease has run out

        def fate() -> Fate:
            found = store.read_session(session)
            assert found is not None
            return found.fate

        assert fate() is Fate.LIVES  # stopped, and may go on: nothing of it is "not happened"
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: fate() is Fate.GONE, "its death was never proved")


def test_leaving_with_exit_code_0_is_a_death(home: Home) -> None:
    with Up(home) as up:
        up.ready()
        home.start("r", agent="dying", args=("exit",))
        up.said("exited with code 0, though no stop was requested")
        home.completed("r")


def test_a_blocked_event_loop_is_reported_with_its_stack_and_killed(home: Home) -> None:
    with Up(home, "--hang", "1") as up:
        up.ready()
        home.start("r", agent="dying", args=("block",))
        up.said("its event loop is blocked")
        up.said("so it was killed")
        assert "in once" in up.log  # where it hangs
        home.completed("r")


def test_a_stopped_supervisor_leaves_nothing_behind_and_costs_no_life(home: Home) -> None:
    with Up(home, "--processes", "2", "--lease", "600") as up:
        workers = up.ready(2)
        home.start("r", agent="held")
        wait_until(lambda: home.noted("r", "second"), "the run never came to its second step")
        assert up.stop() == 0
    row = home.row("r")
    assert row.state is State.CHECKPOINTED
    assert row.deaths == 0
    assert not any(map(is_alive, workers))
    home.go()
    with Up(home):  # no lease is waited for
        home.completed("r")


def test_a_worker_told_to_stop_costs_no_life(home: Home) -> None:
    with Up(home) as up:
        (worker,) = up.ready()
        home.start("r", agent="held")
        wait_until(lambda: home.noted("r", "second"), "the run never came to its second step")
        os.kill(worker, signal.SIGTERM)
        wait_until(lambda: len(home.noted("r", "second")) == 2, "the run was not taken over")
        assert home.row("r").deaths == 0
        home.go()
        home.completed("r")


def test_workers_end_with_a_killed_supervisor_and_the_next_takes_over(home: Home) -> None:
    with Up(home, "--lease", "600") as up:
        (worker,) = up.ready()
        home.start("r", agent="pusher")
        wait_until(lambda: home.noted("r", "pushed"), "the run never came to its step")
        strays = pids_of_strays(home)
        assert all(map(is_alive, strays))
        up.kill()
        wait_until(lambda: not is_alive(worker), "the worker outlived its supervisor")
    home.go()
    with Up(home):
        home.completed("r")
    assert not any(map(is_alive, strays))


def test_what_a_dead_worker_started_is_gone_before_its_run_goes_on(home: Home) -> None:
    with Up(home) as up:
        (worker,) = up.ready()
        home.start("r", agent="pusher")
        wait_until(lambda: home.noted("r", "pushed"), "the run never came to its step")
        strays = pids_of_strays(home)
        os.kill(worker, signal.SIGKILL)
        wait_until(lambda: len(home.noted("r", "pushed")) == 2, "the run was not taken over")
        assert not any(map(is_alive, strays))
        home.go()
        home.completed("r")


def test_who_was_there_before_the_fleet_is_left_alone(home: Home) -> None:
    before = home.path / "before"
    script = f'sleep 1000 & echo $! > {before}; exec "$@"'
    with Up(home, prefix=("sh", "-c", script, "sh")) as up:
        (worker,) = up.ready()
        stranger = bare = int(before.read_text())
        try:
            home.start("r", agent="pusher")
            wait_until(lambda: home.noted("r", "pushed"), "the run never came to its step")
            strays, bare = pids_of_strays(home), int((home.path / "strays" / "bare-session").read_text())
            os.kill(worker, signal.SIGKILL)
            wait_until(lambda: len(home.noted("r", "pushed")) == 2, "the run was not taken over")
            # The one without any mark is known if it was seen in time, as it is before we are stopped.
            assert not any(is_alive(pid) for pid in strays if pid != bare)
            assert is_alive(stranger)
            assert all(map(is_alive, pids_of_strays(home)))
            strays = pids_of_strays(home)
            assert up.stop() == 0
            assert not any(map(is_alive, strays))
            assert is_alive(stranger)
        finally:
            for pid in (stranger, bare):
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)


def test_of_an_agent_no_more_runs_than_its_limit(home: Home) -> None:
    home.start("r1", "r2", agent="held")
    home.start("other", agent="dying", args=("lives",))
    with Up(home, "--limit", "held=1"):
        home.completed("other")
        wait_until(lambda: home.noted("r1", "second"), "the run never came to its second step")
        assert home.noted("r2", "first") == []
        home.go()
        home.completed("r1", "r2")


def pids_of_strays(home: Home) -> list[int]:
    return [int(one.read_text()) for one in (home.path / "strays").iterdir()]


def test_rolling_restart_brings_new_code_and_broken_code_changes_nothing(home: Home) -> None:
    code = home.path / "agents.py"
    with Up(home, "--processes", "2") as up:
        old = up.ready(2)
        home.start("r", agent="held")
        wait_until(lambda: home.noted("r", "second"), "the run never came to its second step")
        whole = code.read_text()
        code.write_text("this is no Python")
        up.process.send_signal(signal.SIGHUP)
        up.said("the new code does not start")
        assert all(map(is_alive, old))
        code.write_text(whole.replace('"old"', '"new"'))
        up.process.send_signal(signal.SIGHUP)
        up.said("all workers have the new code")
        wait_until(lambda: not any(map(is_alive, old)), "the old workers were not ended")
        wait_until(lambda: len(home.noted("r", "second")) == 2, "the run was not taken over")
        home.go()
        home.completed("r")
    assert home.row("r").deaths == 0
    assert [line[3] for line in home.noted("r", "first")] == ["old"]
    assert home.noted("r", "third")[0][3] == "new"


DECLARED = """
import ninelives as nl

@nl.agent
async def one() -> None: ...
"""


@pytest.mark.parametrize(
    ("content", "options", "exit_code", "words"),
    [
        ("1 +", (), 2, "agents.py:1"),
        ("x = 1", (), 2, "declares no agent"),
        ("", ("--store", "memory:"), 2, "cannot share memory"),
        ("", ("--lease", "0"), 2, "--lease 0"),
        ("", ("--lease", "0.01"), 2, "--lease 0.01 expires before it can be renewed"),
        ("", ("--limit", "held"), 2, "--limit 'held'"),
        ("", ("--limit", "held=-1"), 2, "--limit 'held=-1'"),
        ("", ("--limit", "held=1", "--limit", "held=2"), 2, "given twice"),
        (DECLARED, ("--limit", "nobody=1"), 2, "nobody"),
        ("", ("--store", "sqlite:////proc/no.db"), 4, "/proc"),
    ],
)
def test_what_cannot_start_ends_and_says_why(
    home: Home, content: str, options: tuple[str, ...], exit_code: int, words: str
) -> None:
    (home.path / "agents.py").write_text(content)
    done = subprocess.run(
        [sys.executable, "-m", "ninelives", "worker", "agents.py", "--store", home.url, *options],
        cwd=home.path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    assert words in done.stderr

"""The same with real processes, killed with SIGKILL, over a file; `check` is the command for some."""

from __future__ import annotations

from tests.crash.stores import scratch
from tests.edits.campaign import Red
from tests.edits.judge import judge
from tests.edits.pairs import pair_of, perform
from tests.edits.processes import EditServer, Processes, hurried

FIRST, PAIRS, COMMANDS = 7_000, 20, 3


def test_no_edit_repeats_an_effect_after_a_real_kill() -> None:
    deaths = 0
    with EditServer() as server:
        for seed in range(FIRST, FIRST + PAIRS):
            with scratch() as home:
                place = Processes(server, home, by_command=seed < FIRST + COMMANDS)
                history = perform(hurried(pair_of(seed)), place)
            violations = judge(history)
            assert not violations, str(Red(history, violations))
            deaths += sum(life.died for life in history.lives)
    assert deaths > PAIRS / 2

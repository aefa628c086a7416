"""A server's time, known without asking: bounds of its error, and clocks that are set."""

from __future__ import annotations

import random

from ninelives.stores.shared.server_clock import KNOWN_MS, ServerClock


class Pair:
    """A server's wall clock and our boot clock, and answers that take their time."""

    def __init__(self) -> None:
        self.server_ms, self.boot_ms = 1_700_000_000_000, 5_000
        self.clock = ServerClock(lambda: self.boot_ms)

    def pass_by(self, ms: int, drift_ms: int = 0) -> None:
        """Let time pass; the server's clock may be a little faster or slower than ours."""
        self.server_ms += ms + drift_ms
        self.boot_ms += ms

    def ask(self, there_ms: int, back_ms: int) -> None:
        """Ask the server for its time."""
        sent_ms = self.boot_ms
        self.pass_by(there_ms)
        told_ms = self.server_ms
        self.pass_by(back_ms)
        self.clock.learn(told_ms, sent_ms)

    @property
    def error_ms(self) -> int:
        """How far ahead of the server we are."""
        known_ms = self.clock.now_ms()
        assert known_ms is not None
        return known_ms - self.server_ms


def test_nothing_is_known_before_the_first_answer() -> None:
    assert Pair().clock.now_ms() is None


def test_the_first_answer_is_never_ahead_of_the_server_and_at_most_its_way_back_behind() -> None:
    pair = Pair()
    pair.ask(there_ms=30, back_ms=50)
    assert pair.error_ms == -50
    pair.pass_by(1000)
    assert pair.error_ms == -50


def test_a_faster_answer_improves_it_and_a_slower_one_changes_nothing() -> None:
    pair = Pair()
    pair.ask(30, 50)
    pair.ask(1, 1)
    assert pair.error_ms == -1
    pair.ask(400, 400)
    assert pair.error_ms == -1


def test_it_never_goes_backwards_while_the_servers_clock_only_goes_on() -> None:
    rng = random.Random(9)
    pair, last_ms = Pair(), 0
    for _ in range(2_000):
        there_ms, back_ms = rng.randint(0, 80), rng.randint(0, 80)
        pair.ask(there_ms, back_ms)
        assert -(there_ms + back_ms) <= pair.error_ms <= there_ms + back_ms
        now_ms = pair.clock.now_ms()
        assert now_ms is not None
        assert now_ms >= last_ms
        last_ms = now_ms
        pair.pass_by(rng.randint(0, 5_000))


def test_it_follows_a_clock_that_drifts() -> None:
    pair = Pair()
    for drift_ms in [3] * 200 + [-3] * 400:
        pair.ask(5, 5)
        assert abs(pair.error_ms) <= 10
        pair.pass_by(3_000, drift_ms)


def test_it_follows_a_clock_that_is_set_with_the_next_answer() -> None:
    pair = Pair()
    pair.ask(5, 5)
    for jump_ms in (3_600_000, -7_200_000):
        pair.server_ms += jump_ms
        pair.ask(5, 5)
        assert abs(pair.error_ms) <= 10


def test_old_answers_expire() -> None:
    pair = Pair()
    pair.ask(0, 0)
    pair.pass_by(KNOWN_MS - 1)
    assert pair.clock.now_ms() is not None
    pair.pass_by(1)
    assert pair.clock.now_ms() is None


def test_an_answer_counts_for_a_whole_lease() -> None:
    pair = Pair()
    pair.clock.learn(pair.server_ms, pair.boot_ms, known_ms=10 * KNOWN_MS)
    pair.pass_by(9 * KNOWN_MS)
    assert pair.error_ms == 0

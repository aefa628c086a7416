"""Leases that a server keeps by a clock that may be set: our own boot clock is read too."""

from __future__ import annotations

from ninelives.core.model.session import Session
from ninelives.stores.shared.sessions import ObservedLeases

LEASE_MS = 10_000


class Server:
    """A server's clock, and ours; the one may be set, the other only goes on."""

    def __init__(self) -> None:
        self.wall_ms, self.boot_ms = 1_000_000, 500
        self.renewed_ms = self.wall_ms
        self.leases = ObservedLeases(lambda: self.boot_ms)

    def go_on(self, ms: int) -> None:
        """Let time pass."""
        self.wall_ms += ms
        self.boot_ms += ms

    def read(self) -> Session:
        """Return the session as the server tells it."""
        left_ms = max(0, self.renewed_ms + LEASE_MS - self.wall_ms)
        return Session(
            id="s1",
            host="far",
            pid=1,
            code="",
            lease_ms=LEASE_MS,
            started_ms=0,
            renewed_ms=self.renewed_ms,
            left_ms=left_ms,
        )

    def left_ms(self) -> int:
        """Return what is left, as we judge it."""
        return self.leases.judged(self.read()).left_ms

    def is_ended(self) -> bool:
        """Tell whether we would end it."""
        return self.left_ms() <= 0 and self.leases.may_end(self.read())


def test_a_clock_that_is_set_back_delays_no_end() -> None:
    server = Server()
    assert server.left_ms() == LEASE_MS
    server.wall_ms -= 3_600_000
    server.go_on(LEASE_MS - 1)
    assert not server.is_ended()
    server.go_on(1)
    assert server.is_ended()


def test_who_comes_after_the_clock_was_set_back_waits_for_one_lease() -> None:
    server = Server()
    server.wall_ms -= 3_600_000
    assert server.left_ms() == LEASE_MS
    server.go_on(LEASE_MS)
    assert server.is_ended()


def test_a_clock_that_is_set_forward_ends_nobody_that_renews() -> None:
    server = Server()
    server.left_ms()
    for _ in range(5):
        server.wall_ms += 3_600_000
        server.go_on(LEASE_MS // 3)
        assert not server.is_ended()
        server.renewed_ms = server.wall_ms
        assert server.left_ms() == LEASE_MS


def test_who_finds_a_lease_that_has_run_out_watches_it_for_half_its_length() -> None:
    server = Server()
    server.wall_ms += 3_600_000
    assert not server.is_ended()
    server.go_on(LEASE_MS // 2)
    assert server.is_ended()


def test_who_renewed_its_own_lease_may_act_for_as_long_as_its_own_clock_says() -> None:
    server = Server()
    server.leases.renewed(server.read(), server.boot_ms)
    server.wall_ms += 3_600_000
    server.go_on(LEASE_MS - 1)
    assert server.leases.judged_own(server.read()).left_ms == 1
    server.wall_ms -= 7_200_000
    server.go_on(1)
    assert server.leases.judged_own(server.read()).left_ms == 0


def test_a_session_that_is_not_our_own_may_act_only_while_the_server_says_so() -> None:
    server = Server()
    server.left_ms()
    server.wall_ms += LEASE_MS
    assert server.leases.judged_own(server.read()).left_ms == 0


def test_a_store_with_a_clock_of_its_own_needs_no_other_clock() -> None:
    server = Server()
    server.leases = ObservedLeases(None)
    server.wall_ms += LEASE_MS
    assert server.is_ended()

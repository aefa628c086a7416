"""The long programme itself: what was not done must not look as if it had held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import to_builtins

from tests.crash import powercut, programme
from tests.crash.forkserver import ForkServer


@pytest.mark.parametrize(("cuts", "status"), [(60, "held"), (59, "violated"), (0, "violated")])
def test_fewer_power_cuts_than_wanted_are_a_violation(
    cuts: int, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(powercut, "reason_not_to", lambda: "")
    made = to_builtins(powercut.Cuts(cuts=cuts, acknowledged=100, control_acknowledged=100))
    server = cast("ForkServer", SimpleNamespace(run=lambda *_, **__: SimpleNamespace(result=lambda: made)))
    assert programme.power(server, 1, lambda *_: None).status == status

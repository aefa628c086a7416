"""Where an injected fault fires."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninelives.chaos.ledger import Ledger, LedgerReader, What
from ninelives.chaos.process.fault_injection import FaultInjector
from ninelives.chaos.protocol import FaultKind, FaultMoment, InjectedFault
from ninelives.core.errors import StoreBroken

POINTS = ("pay[0]", "ticket-1 /pay[0]", "b/pay[1]")


def fault(**where: object) -> InjectedFault:
    return InjectedFault(kind=FaultKind.LOST, moment=FaultMoment.END, **where)  # type: ignore[arg-type]


@pytest.mark.parametrize("point", POINTS)
def test_a_fault_among_steps_fits_them_in_any_run_and_branch(point: str) -> None:
    assert fault(among=("pay", "book")).fits(point)
    assert not fault(among=("book",)).fits(point)
    assert not fault(among=("pay",), passed=(point,)).fits(point)
    assert not fault(only="pay[7]").fits(point)


def test_a_fault_lets_as_many_points_pass_as_it_says_and_fires_once(tmp_path: Path) -> None:
    ledger, reader = Ledger(tmp_path / "ledger", 1), LedgerReader(tmp_path / "ledger")
    injector = FaultInjector(fault(among=("pay",), skip=1), ledger)
    injector.reach(FaultMoment.END, "book[0]")
    injector.reach(FaultMoment.BEGIN, "pay[0]")
    injector.reach(FaultMoment.END, "pay[0]")
    assert reader.read() == []
    with pytest.raises(StoreBroken):
        injector.reach(FaultMoment.END, "pay[1]")
    injector.reach(FaultMoment.END, "pay[2]")
    assert [(line.what, line.step) for line in reader.read()] == [(What.FAULT, "pay[1]")]
    ledger.close()

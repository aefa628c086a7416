"""The page: whole, self-contained, and nothing from the user's code gets through unescaped."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from ninelives.chaos.campaign.campaign import Campaign
from ninelives.chaos.findings.finding import Finding, Mistake
from ninelives.chaos.findings.metrics import judge
from ninelives.chaos.ledger import LedgerLine, What
from ninelives.chaos.report.html import page
from ninelives.chaos.report.timelines import timelines
from ninelives.chaos.trial.trial import Trial, TrialLife

HOSTILE = '<script>alert(1)</script>"\x1b[31m\u202e'
VOID = {"meta", "br"}


class Balanced(HTMLParser):
    """Collects the tags, and what was not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.seen.add(tag)
        assert not any(name.startswith("on") or name in ("href", "src") for name, _ in attrs), attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See a tag that closes itself."""
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close a tag."""
        assert self.open.pop() == tag


def trial(name: str) -> Trial:
    made = Trial(name, 0, 1.0)
    made.lives = [TrialLife(1, 1.0, 1.4, -9, HOSTILE), TrialLife(2, 1.5, 2.0, 0, "came to its end")]
    made.lines = [
        LedgerLine(at=1.1, life=1, what=What.BEGIN, step=f"#{HOSTILE}#0", data={"name": HOSTILE, "turn": 0}),
        LedgerLine(at=1.2, life=1, what=What.EFFECT, kind="write", target=HOSTILE, location="agent.py:3"),
        LedgerLine(at=1.3, life=1, what=What.FAULT, kind="KILL", target="END", step=HOSTILE),
        LedgerLine(at=1.6, life=2, what=What.READY),
        LedgerLine(at=1.7, life=2, what=What.BEGIN, step=f"#{HOSTILE}#0", data={"name": HOSTILE, "turn": 0}),
        LedgerLine(at=1.8, life=2, what=What.STORED, data={"records": [["end", ""]]}),
    ]
    made.state, made.result, made.seconds, made.why = "completed", '"x"', 1.0, HOSTILE
    return made


def test_the_page_is_whole_and_everything_in_it_is_escaped() -> None:
    campaign = Campaign([trial("calm"), trial("calm")], [trial(HOSTILE)], [HOSTILE], 3.0)
    finding = Finding(
        mistake=Mistake.OUTSIDE,
        file=HOSTILE,
        line=3,
        code=HOSTILE,
        what=HOSTILE,
        remedy=HOSTILE,
        step=HOSTILE,
    )
    text = page(campaign, judge(campaign, [finding]), HOSTILE)
    parser = Balanced()
    parser.feed(text)
    assert parser.open == []
    assert "script" not in parser.seen
    assert {"svg", "rect", "line", "table", "main"} <= parser.seen
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_of_many_runs_all_are_there_and_most_are_folded_away() -> None:
    lost = trial("the one that was lost")
    others = [trial(f"run {number}") for number in range(300)]
    for one in others:
        one.why = ""
    campaign = Campaign([trial("calm"), trial("calm")], [*others, lost], [], 3.0)
    text = page(campaign, judge(campaign, []), "agent.py:support")
    unfolded, _, folded = text.partition("<h2>Timelines</h2>")[2].partition("<details>")
    assert unfolded.index("the one that was lost") < unfolded.index("run 0")
    assert unfolded.count("<svg") < folded.count("<svg")
    assert "151 more runs are not drawn" in folded
    assert all(f"<td>{one.name}</td>" in folded for one in others)


def test_a_reader_without_eyes_is_told_the_numbers_and_what_is_drawn() -> None:
    campaign = Campaign([trial("calm"), trial("calm")], [trial("killed")], ["store cut off"], 3.0)
    text = page(campaign, judge(campaign, []), "agent.py:support")
    labels = re.findall(r'role="img" aria-label="([^"]*)"', text)
    assert labels[0].startswith("1 recoveries: median 0.100 s")
    assert labels[1].startswith("killed: 2 processes, 1.00 s")
    assert text.count("✓ met") + text.count("✗ MISSED") == 5
    assert '<th scope="row">' in text
    assert "<b>Left out, out of time:</b> store cut off" in text


def test_only_a_run_that_came_to_its_end_is_drawn_as_one() -> None:
    good, stuck, other = trial("good"), trial("stuck"), trial("other")
    good.why = other.why = ""
    stuck.why, stuck.state, other.state = "divergence: step 3 is another", "checkpointed", "failed"
    for one, is_good in ((good, True), (stuck, False), (other, False)):
        drawn = "".join(timelines([one], "completed")).partition("</ul>")[2]
        assert ('class="work ended"' in drawn) is is_good
        assert ('class="work lost"' in drawn) is not is_good


def test_the_page_says_why_nothing_was_tried_and_what_was_shortened() -> None:
    campaign = Campaign([trial("calm")], [], [], 3.0, error="it never ends", shortened=["at 3 of 9 points"])
    text = page(campaign, judge(campaign, []), "agent.py:support")
    assert "<b>Why:</b> it never ends" in text
    assert "<b>Shortened to fit --seconds:</b> at 3 of 9 points" in text
    assert "No faults could be injected." in text

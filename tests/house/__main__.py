"""Measure the house: `make house`. Prints the table, lowers the maxima, and writes the page."""

from __future__ import annotations

import argparse
from pathlib import Path

from tests.house import words
from tests.house.habits import privates
from tests.house.measures import lower_maxima, read_source, walk
from tests.house.page import page, table
from tests.house.source import House


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--page", type=Path, help="write the page there")
    options = parser.parse_args()
    house = House()
    measures = [*read_source(house), *walk()]
    print("\n".join(table(measures)))
    lower_maxima(measures)
    words.lower_counts(house)
    if options.page:
        options.page.write_text(page(house, measures, privates(house)[1]), encoding="utf-8")


if __name__ == "__main__":
    main()

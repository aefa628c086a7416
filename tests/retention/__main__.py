"""`python -m tests.retention --minutes 60`: load with retention on; exits with 1 unless the size is flat."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.retention.load import measure
from tests.retention.test_retention import growth_of


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(prog="python -m tests.retention", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        sizes = measure(Path(home), asked.minutes * 60)
    step = max(1, len(sizes.bytes) // 30)
    for at in range(0, len(sizes.bytes), step):
        sys.stdout.write(f"{at / 2:8.0f} s {sizes.bytes[at]:>14,} bytes\n")
    growth = growth_of(sizes)
    said = f"{sizes.runs:,} runs ended, {sizes.journals:,} journals and {sizes.entries:,} entries removed"
    sys.stdout.write(f"{said}; the second half is {growth:.2f} times as large as the first\n")
    return 0 if growth < 1.1 else 1


if __name__ == "__main__":
    sys.exit(main())

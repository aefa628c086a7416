"""`python -m ninelives.demo`."""

from __future__ import annotations

import sys

from ninelives.demo import main

if __name__ == "__main__":
    sys.exit(main())

"""``python -m faults.cli``: the same as the ``faultlab`` script."""

from __future__ import annotations

import sys

from faults.cli.app import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m gnnperf` is `gnnperf`."""

import sys

from gnnperf.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

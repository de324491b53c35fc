"""Time and memory of every pool: `python benchmarks/pooling.py [--json] [--pools simpool gsp] [--rounds 7]`.

The same as `cenote bench pools`. About 15 minutes for all pools on two cores, two for `--pools simpool gsp`.
"""

import sys

from cenote.cli import main

sys.exit(main(["bench", "pools", *sys.argv[1:]]))

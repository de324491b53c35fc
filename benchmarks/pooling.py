"""Time and memory of every pool: `python benchmarks/pooling.py [--json] [--pools simpool gsp] [--rounds 7] [--busy 2]`.

The same as `cenote bench pools`. Two minutes on two cores for `--pools simpool gsp`;
all pools at all sizes take about that long with `--rounds 1`.
"""

import sys

from cenote.cli import main

sys.exit(main(["bench", "pools", *sys.argv[1:]]))

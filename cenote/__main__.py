"""`python -m cenote` is `cenote`."""

import sys

from .cli import main

sys.exit(main())

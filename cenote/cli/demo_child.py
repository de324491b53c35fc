"""`python -m cenote.cli.demo_child WORDS` is `cenote WORDS`, but ends with all its processes when the demo is gone.

Otherwise a demo that was killed would leave its stage behind, and the next demo would start a second one beside it.
"""

import os
import signal
import sys
from threading import Thread

from . import main


def end_with_the_demo() -> None:
    os.read(
        0, 1
    )  # the demo never writes to this pipe: it is read to its end when nobody holds the other one
    os.killpg(0, signal.SIGKILL)  # also processes that read images; the group is the stage's own


if __name__ == "__main__":
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a demo in the background of a script was told to ignore it
    Thread(target=end_with_the_demo, daemon=True).start()
    sys.exit(main())

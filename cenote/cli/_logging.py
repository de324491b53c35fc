"""Show the library's log messages on stderr, one plain line each."""

from __future__ import annotations

import logging
import os
import sys


class TqdmHandler(logging.Handler):
    """Write records above a running progress bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


def show_messages() -> None:
    """Print messages of level INFO and above; under torchrun only the first process prints.

    Calling it twice changes nothing.
    """
    logger = logging.getLogger("cenote")
    logger.setLevel(logging.INFO)
    if os.environ.get("RANK", "0") != "0":
        logger.addHandler(logging.NullHandler())
        return
    if not any(isinstance(handler, TqdmHandler) for handler in logger.handlers):
        logger.addHandler(TqdmHandler())

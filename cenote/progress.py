"""Progress bars: images per second and the time that is left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

FORMAT = "{l_bar}{bar}| {n_fmt}/{total_fmt}, {rate_noinv_fmt}, {remaining} left{postfix}"


def progress_bar(
    name: str, total: int, unit: str = "images", hidden: bool = False, **options: Any
) -> Any:
    """Return a tqdm bar on stderr, hidden without a terminal or notebook; `options` are tqdm's."""
    from tqdm import tqdm

    return tqdm(
        desc=name,
        total=total,
        unit=f" {unit}",
        bar_format=FORMAT,
        smoothing=0.1,  # batches vary: the rate is a mean over about ten of them
        dynamic_ncols=True,
        disable=hidden or not (sys.stderr.isatty() or _in_notebook()),
        leave=False,
        file=sys.stderr,
        **options,
    )


def _in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this, whose stderr is not a terminal but is shown."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


@contextmanager
def progress_of_total(name: str, hidden: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the images done and their total, which shows a bar from its first call."""
    with ExitStack() as bars:
        bar: Any = None

        def advance(done: int, total: int) -> None:
            nonlocal bar
            if bar is None:
                bar = bars.enter_context(progress_bar(name, total, hidden=hidden))
            bar.update(done - bar.n)

        yield advance

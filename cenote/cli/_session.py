"""What every protocol of `cenote evaluate` is given, and where its pictures and its part of the page go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._arguments import print_message

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.models import PooledModel
    from cenote.train.judged import Judged


@dataclass
class Session:
    """What every protocol is given."""

    run: Path
    model: PooledModel
    parts: Judged
    out: Path | None  # where pictures go
    batch: int
    workers: int
    seed: int = 0
    data: Dataset | None = None  # all of it, where no split was asked for
    without_match: str = "exclude"  # queries with nothing to find
    options: dict[str, Any] = field(init=False)
    finished: list[Path] = field(
        default_factory=list
    )  # of interrupted runs: not needed once results.json is there
    blocks: dict[str, Any] = field(default_factory=dict)  # of the page, by protocol
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.options = {"batch": self.batch, "workers": self.workers}

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], object]]:
        from tqdm import tqdm

        with tqdm(total=total, desc=what, unit="image", disable=None, leave=False) as bar:
            yield bar.update

    def draw(self, name: str, write: Callable[[Path], object]) -> None:
        """`write` is given the folder, if there is one; a picture that fails is told and costs no figure."""
        if self.out is None:
            return
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            write(self.out)
        except Exception as error:
            print_message(f"{name} was not drawn: {error}")

    def draw_one(self, name: str, make: Callable[[], Any]) -> None:
        """A figure or an image, or None for none."""
        self.draw(name, lambda folder: _save(make(), folder / name))

    def show(self, protocol: str, make: Callable[[Path], Any]) -> None:
        """Blocks of the page, behind the pictures that they may hold."""
        self.draw(
            f"{protocol} on the page", lambda folder: self.blocks.update({protocol: make(folder)})
        )

    def write_page(self, reports: dict[str, Any]) -> None:
        from cenote.report.html import write_page
        from cenote.report.html.evaluation import evaluation_page

        from ._arguments import command_line

        def write(folder: Path) -> None:
            seconds = time.monotonic() - self.started
            write_page(
                folder, evaluation_page(self.title, reports, self.blocks, command_line(), seconds)
            )

        self.draw("index.html", write)

    def tidy(self) -> None:
        """Results are written: what a killed run would have gone on with is in the way of the next."""
        for path in self.finished:
            path.unlink(missing_ok=True)
        self.finished.clear()

    @property
    def title(self) -> str:
        config = self.model.config
        return f"{self.parts.judged.name} · {config['backbone']} + {config['pool']}"

    def memory(self, what: str) -> Dataset:
        if self.parts.train is None:
            raise ValueError(
                f"{what} needs training images in {self.parts.judged.name}, apart from what is judged"
            )
        return self.parts.train


def _save(picture: Any, path: Path) -> None:
    from cenote.data import write_atomically

    if picture is None:
        return
    with write_atomically(path) as temporary:
        if hasattr(picture, "savefig"):
            picture.savefig(temporary, dpi=110)
        else:
            picture.save(temporary, quality=92)

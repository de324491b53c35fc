"""An index: vectors of images, what is known of each, and where both are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from .filters import Filter
from .plan import Database

if TYPE_CHECKING:
    from ..models.image_text import ImageText


class Busy(RuntimeError):
    """Another process is writing."""


class Damaged(ValueError):
    """An index that cannot be read."""


class Entry(NamedTuple):
    """One image."""

    path: str  # absolute, or NAME:IMAGE where a data set's images are no files
    digest: str  # of its contents, hexadecimal
    size: int = 0  # bytes
    time: int = 0  # of its last change, nanoseconds
    width: int = 0
    height: int = 0
    date: float = 0.0  # when it was taken (EXIF), else of its last change; seconds since 1970
    look: int = (
        0  # 64 bits of light and dark, see `look_of`: pictures that look the same differ in few
    )
    source: str = ""  # the DATA it came with
    label: str | None = None
    domain: str | None = None
    split: str | None = None
    caption: str | None = None
    attributes: Mapping[str, str] = {}


class Known(NamedTuple):
    """What indexing asks of an image that is there already."""

    row: int
    entry: Entry


@dataclass(frozen=True)
class Description:
    """What an index is made of."""

    model: str  # the name that creates it
    identity: str  # and with the digest of its weights
    dim: int
    dtype: str = "float32"
    words: Mapping[str, Any] = field(
        default_factory=dict
    )  # name, digest and n of the word list; empty: none
    format: int = 1

    def asdict(self) -> dict[str, Any]:
        return asdict(self)

    def refuse_other(self, model: ImageText, where: str) -> None:
        if model.identity != self.identity:
            alike = model.identity.rpartition(" ")[0] == self.identity.rpartition(" ")[0]
            other = "other weights of that name" if alike else f"'{model.name}'"
            raise ValueError(
                f"{where} was made with the model '{self.model}', not with {other}: name another index"
            )


class Writer(Protocol):
    """Whoever changes an index. What a call has written stays, whatever happens after it."""

    def put(self, entries: Sequence[Entry], vectors: Tensor, words: Tensor | None = None) -> None:
        """Add images, or put them in the place of those of the same path."""

    def note(self, entries: Sequence[Entry]) -> None:
        """Change what is known of images that are there; their vectors stay."""

    def remove(self, paths: Iterable[str]) -> int:
        """How many there were."""


class Store(Database, Protocol):
    """What every index can do."""

    where: str  # its folder or address
    description: Description

    def select(self, filter: Filter) -> Store:
        """A view of some of its images."""

    def scan(self, vectors: Tensor) -> tuple[Tensor, Tensor] | None:
        """(V, D) -> similarities (V, N) to every image and their rows (N,); None where that would be too slow."""

    def entries(self, rows: Tensor) -> list[Entry]: ...

    def known(self) -> dict[str, Known]:
        """Every image by its path."""

    def find(self, digest: str) -> list[int]:
        """Rows of images with these contents."""

    def names(self, column: str) -> list[str]:
        """What there is of a `label` or `domain`, sorted."""

    def forget_words(self) -> None:
        """Give no stored words from here on: they are of another list."""

    def writing(self) -> AbstractContextManager[Writer]: ...


def open_store(address: str | Path, description: Description | None = None) -> Store:
    """A folder, or Milvus: `http://host:19530/name`, a `*.db` file. With a description it is made where it is not."""
    text = str(address)
    if is_milvus(text):
        from .milvus import Milvus

        return Milvus.open(text, description)
    from .embedded import Embedded

    return Embedded.open(Path(text).expanduser(), description)


def find_store(address: str | Path) -> Store | None:
    """The index at this address, None where there is none yet."""
    text = str(address)
    if is_milvus(text):
        from .milvus import Milvus

        return Milvus.there(text)
    from .embedded import Embedded

    folder = Path(text).expanduser()
    return Embedded.open(folder) if (folder / "index.json").is_file() else None


def is_milvus(address: str) -> bool:
    return "://" in address or address.endswith(".db")

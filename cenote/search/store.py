"""An index: vectors of images, what is known of each, and where both are kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from .composition import Database
from .filters import Filter

if TYPE_CHECKING:
    from ..models.image_text import ImageText


class IndexBusy(RuntimeError):
    """Another process is writing."""


class IndexDamaged(ValueError):
    """An index that cannot be read."""


class ImageEntry(NamedTuple):
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


class IndexedImage(NamedTuple):
    """What indexing asks of an image that is there already."""

    row: int
    entry: ImageEntry


@dataclass(frozen=True)
class IndexDescription:
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

    def put(
        self, entries: Sequence[ImageEntry], vectors: Tensor, words: Tensor | None = None
    ) -> None:
        """Add images, or put them in the place of those of the same path."""

    def update(self, entries: Sequence[ImageEntry]) -> None:
        """Change what is known of images that are there; their vectors stay."""

    def remove(self, paths: Iterable[str]) -> int:
        """How many there were."""


class Store(Database, Protocol):
    """What every index can do."""

    where: str  # its folder or address
    description: IndexDescription

    def select(self, filter: Filter) -> Store:
        """A view of some of its images."""

    def scan(self, vectors: Tensor) -> tuple[Tensor, Tensor] | None:
        """(V, D) -> similarities (V, N) to every image and their rows (N,); None where that would be too slow."""

    def entries(self, rows: Tensor) -> list[ImageEntry]: ...

    def images(self) -> dict[str, IndexedImage]:
        """Every image by its path."""

    def find(self, digest: str) -> list[int]:
        """Rows of images with these contents."""

    def distinct_values(self, column: str) -> list[str]:
        """What there is of a `label` or `domain`, sorted."""

    def drop_words(self) -> None:
        """Give no stored words from here on: they are of another list."""

    def writer(self) -> AbstractContextManager[Writer]: ...


def open_store(address: str | Path, description: IndexDescription | None = None) -> Store:
    """A folder, or Milvus: `http://host:19530/name`, a `*.db` file. With a description it is made where it is not."""
    text = str(address)
    if is_milvus(text):
        from .milvus_store import MilvusStore

        return MilvusStore.open(text, description)
    from .local_store import LocalStore

    return LocalStore.open(Path(text).expanduser(), description)


def find_store(address: str | Path) -> Store | None:
    """The index at this address, None where there is none yet."""
    text = str(address)
    if is_milvus(text):
        from .milvus_store import MilvusStore

        return MilvusStore.there(text)
    from .local_store import LocalStore

    folder = Path(text).expanduser()
    return LocalStore.open(folder) if (folder / "index.json").is_file() else None


def is_milvus(address: str) -> bool:
    return "://" in address or address.endswith(".db")

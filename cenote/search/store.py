"""What an index stores about images, filters, and the interface that every back end implements.

A new back end is one file with a subclass of `Store` and one line in load.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

from torch import Tensor

from .database import Database, MomentSums
from .inputs import no_index

if TYPE_CHECKING:
    from ..models.image_text import ImageText
    from .words import WordMemory

DTYPES = ("float32", "float16")  # of stored vectors
STORED_WORDS = 7  # nearest words of each image in an index; FreeDom's n


class IndexBusy(RuntimeError):
    """Another process is writing to the index."""


class IndexDamaged(ValueError):
    """The index cannot be read."""


class ImageEntry(NamedTuple):
    """What an index stores about an image beside its vector. The fields are columns on disk."""

    path: str  # absolute, or NAME:IMAGE if the images of a data set are not files
    digest: str  # of the file's contents, hexadecimal
    size: int = 0  # bytes
    time: int = 0  # modification time in nanoseconds; 0 if the image is not a file
    width: int = 0
    height: int = 0
    date: float = 0.0  # date taken (EXIF), else modification time; seconds since 1970
    look: int = 0  # difference hash of 64 bits, see `difference_hash`
    source: str = ""  # the DATA argument that the image came with
    label: str | None = None
    domain: str | None = None
    split: str | None = None
    caption: str | None = None
    attributes: Mapping[str, str] = {}
    keywords: str | None = None  # of EXIF, IPTC and XMP, one a line; None: not read yet


class TextMatch(NamedTuple):
    """A text of an image: its field, such as folder or caption, and its words."""

    field: str
    text: str


class TextHits(NamedTuple):
    """Texts that contain words of a query, and their images."""

    texts: list[TextMatch]
    words: Tensor  # (T, W): which words of the query a text contains
    rows: Tensor  # (M,) of images, one for each of their texts
    places: Tensor  # (M,) of these texts


class IndexedImage(NamedTuple):
    row: int
    entry: ImageEntry


@dataclass(frozen=True)
class IndexDescription:
    """How an index was made: index.json."""

    model: str  # name that creates it
    identity: str  # name and digest of its weights
    dim: int
    dtype: str = "float32"
    words: Mapping[str, Any] = field(default_factory=dict)  # name, digest and n; {}: no word list
    format: int = 1
    scaled_decoding: bool = False  # of large JPEGs; False in an index of an earlier version
    local: Mapping[str, int] = field(default_factory=dict)  # k and dim; {}: no local vectors

    @classmethod
    def create(
        cls,
        name: str,
        model: ImageText,
        words: WordMemory | None = None,
        word_list: str = "",
        dtype: str = "float32",
        local: Mapping[str, int] = {},
    ) -> IndexDescription:
        """Describe a new index; `word_list` is the file of the words, empty for the default."""
        word_info = dict[str, str | int]()
        if words is not None:
            n = min(STORED_WORDS, len(words.words))
            word_info = {"name": word_list, "digest": words.digest, "n": n}
        return cls(
            name, model.identity, model.dim, dtype, word_info, scaled_decoding=True, local=local
        )

    @property
    def words_per_image(self) -> int:
        return int(self.words.get("n", 0))

    @property
    def local_vectors(self) -> int:
        """Number of local vectors of each image."""
        return int(self.local.get("k", 0))

    @property
    def local_width(self) -> int:
        """Numbers of all local vectors of an image."""
        return self.local_vectors * int(self.local.get("dim", 0))

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> IndexDescription:
        """Raise ValueError or TypeError if the text does not describe an index."""
        try:
            description = cls(**json.loads(text))
        except RecursionError:
            raise ValueError("its JSON is nested too deeply") from None
        texts = (description.model, description.identity, description.dtype)
        if (
            not all(isinstance(text, str) for text in texts)
            or not isinstance(description.words, dict)
            or not isinstance(description.local, dict)
            or description.dim < 1
            or description.words_per_image < 0
            or description.local_width < 0
            or description.dtype not in DTYPES
        ):
            raise ValueError("wrong values")
        return description

    def with_files(self, resolve: Callable[[str], str]) -> IndexDescription:
        """Apply `resolve` to the paths of the model and of the word list."""
        prefix, file = split_model_name(self.model)
        words = self.words and {**self.words, "name": resolve(self.words.get("name", ""))}
        return replace(self, model=prefix + resolve(file), words=words)

    def check_model(self, model: ImageText, where: str) -> None:
        """Raise ValueError if the index at `where` was made with another model."""
        if model.identity != self.identity:
            used_model = f"'{model.name}'"
            if model.identity.rpartition(" ")[0] == self.identity.rpartition(" ")[0]:
                used_model = "other weights of that name"
            raise ValueError(
                f"{where} was made with the model '{self.model}', not with {used_model}: "
                "name another index"
            )


@dataclass(frozen=True)
class Filter:
    """All conditions must hold; one of several names is enough.

    Dates are seconds since 1970, sizes bytes.
    """

    classes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()  # absolute, or the beginning of a data set's image names
    since: float | None = None
    until: float | None = None  # exclusive
    smallest: int | None = None
    largest: int | None = None
    rows: tuple[int, ...] = ()  # of the images themselves

    def __bool__(self) -> bool:
        return self != Filter()

    def sql(self) -> tuple[str, list[Any]]:
        """Return a condition and its values."""
        conditions, values = list[str](), list[Any]()
        for column, names in self._names():
            conditions.append(f"{column} in ({', '.join('?' * len(names))})")
            values += names
        if self.folders:
            # A range finds a prefix through the index of paths; the character after / is 0.
            ranges = " or ".join(["path >= ? and path < ?"] * len(self.folders))
            conditions.append(f"({ranges})")
            for start, end in self._path_ranges():
                values += [os.fsencode(start), os.fsencode(end)]
        for column, operator, bound in self._bounds():
            conditions.append(f"{column} {operator} ?")
            values.append(bound)
        return " and ".join(conditions) or "1", values

    def milvus(self) -> str:
        """Return an expression; Milvus quotes strings as JSON does."""
        conditions = [f"{column} in {_quote(list(names))}" for column, names in self._names()]
        if self.folders:
            ranges = [
                f"(path >= {_quote(start)} and path < {_quote(end)})"
                for start, end in self._path_ranges()
            ]
            conditions.append("(" + " or ".join(ranges) + ")")
        conditions += [f"{column} {sign} {bound!r}" for column, sign, bound in self._bounds()]
        return " and ".join(conditions)

    def _names(self) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        columns = (("label", self.classes), ("domain", self.domains), ("row", self.rows))
        for column, names in columns:
            if names:
                yield column, names

    def _path_ranges(self) -> list[tuple[str, str]]:
        prefixes = [folder.rstrip("/") for folder in self.folders]
        return [(f"{prefix}/", f"{prefix}0") for prefix in prefixes]

    def _bounds(self) -> list[tuple[str, str, float]]:
        bounds = [
            ("date", ">=", self.since),
            ("date", "<", self.until),
            ("size", ">=", self.smallest),
            ("size", "<=", self.largest),
        ]
        return [(column, sign, bound) for column, sign, bound in bounds if bound is not None]


def _quote(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class StoreWriter(Protocol):
    """Changes an index inside a `with` block. What was written before an error persists."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None: ...

    def put(
        self,
        entries: Sequence[ImageEntry],
        vectors: Tensor,
        words: Tensor | None = None,
        local: Tensor | None = None,
    ) -> None:
        """Add images, replacing those with the same path."""

    def flush(self) -> None:
        """Make what `put` has received visible; a back end may write it in larger batches."""
        return None

    def update(self, entries: Sequence[ImageEntry]) -> None:
        """Change the entries of stored images; their vectors stay."""

    def remove(self, paths: Iterable[str]) -> int:
        """Remove images and return how many were stored."""

    def set_sums(self, sums: MomentSums) -> None:
        """Take these sums of all images, if their number is right, instead of computing them."""
        return None

    def compact(self) -> bool:
        """Reclaim the space of removed images if it is worth it; return whether it was."""
        return False


class Store(Database, Protocol):
    """An index: a database of image vectors, the entries of the images, and a description."""

    dtypes: ClassVar[tuple[str, ...]] = DTYPES
    fixed_description: ClassVar[bool] = False  # `describe` has no effect
    stores_local: ClassVar[bool] = False  # local vectors beside the vector of an image
    where: str  # folder or address, without a password
    description: IndexDescription
    use_words: bool = True  # False: another word list is in use, the stored words are ignored

    @classmethod
    def accepts(cls, address: str) -> bool:
        """Return whether this back end is responsible for the address."""

    @classmethod
    def find(cls, address: str) -> Self | None:
        """Open an index, or return None if there is none; creates nothing."""

    @classmethod
    def create(cls, address: str, description: IndexDescription) -> Self: ...

    @classmethod
    def open(cls, address: str | Path, description: IndexDescription | None = None) -> Self:
        """Open an index; with a description, create it if it does not exist."""
        store = cls.find(str(address))
        if store is None and description is not None:
            store = cls.create(str(address), description)
        if store is None:
            raise no_index(without_password(str(address)))
        return store

    @classmethod
    def folder_of(cls, address: str) -> Path | None:
        """Return the folder that holds the index, if it is one of this machine."""
        return None

    @property
    def dim(self) -> int:
        return self.description.dim

    @property
    def version(self) -> object:
        """Return a value that changes with the images, as far as the back end can say."""
        return len(self)

    def select(self, filter: Filter) -> Self:
        """Return a view of some of the images."""

    def scan(self, vectors: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return similarities (V, N) of `vectors` (V, D) to every image, and the rows (N,).

        None if that would be too slow or too large: then only candidates are ranked.
        """
        return None

    def local(self, rows: Tensor) -> Tensor | None:
        """Return the local vectors (R, k, D) of these rows, if they are stored."""
        return None

    def find_texts(self, words: Sequence[str]) -> TextHits | None:
        """Find the texts of images of this view that contain one of the words.

        None if the index stores no texts: it was made by an earlier version.
        """
        return None

    def entries(self, rows: Tensor) -> list[ImageEntry]: ...

    def images(self) -> dict[str, IndexedImage]:
        """Return every image by its path."""

    def find_paths(self, paths: Sequence[str]) -> dict[str, IndexedImage]:
        """Return those images that are stored, by their paths; a moved index needs a writer."""

    def sources(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the source of every image."""

    def sample(self, count: int) -> list[IndexedImage]:
        """Return about `count` images from the whole index; none if that would be slow."""

    def rows_with_digest(self, digest: str) -> list[int]:
        """Return the rows of images with these contents."""
        return self.rows_with_digests([digest]).get(digest, [])

    def rows_with_digests(self, digests: Sequence[str]) -> dict[str, list[int]]:
        """Return the rows of images with these contents, by digest, in ascending order."""

    def distinct_values(self, column: str) -> list[str]:
        """Return the different values of `label` or `domain`, sorted."""

    def writer(self) -> StoreWriter: ...

    def describe(self, description: IndexDescription) -> None:
        """Store another location of the same model or word list."""
        self.description = description

    def refresh(self) -> None:
        """See what was written since the index was opened."""
        return None

    def release(self) -> None:
        """Close the files of the index until the next `refresh`."""
        return None

    def open_approximate(self) -> bool:
        """Search approximately from now on, if there is a good index for that; return whether."""
        return False

    def update_approximate(self, mode: str = "auto", texts: Tensor | None = None) -> str | None:
        """Build or delete an index for approximate search; return a message, if any.

        `mode` is auto, yes or no; `texts` (N, D) are queries to measure the recall with.
        """
        return None


def without_password(address: str) -> str:
    return re.sub("//[^/]*@", "//", address)


def split_model_name(name: str) -> tuple[str, str]:
    """Split a model's name into a prefix and its file or folder: "open_clip/ViT-B-32/", "w.pt"."""
    kind, _, remainder = name.partition("/")
    if kind == "text-space" or remainder.startswith("hf-hub:"):
        return name, ""
    if kind not in ("open_clip", "timm"):
        return "", name
    mark = ":" if remainder.startswith(("local-dir:", "hf:")) else "/"
    model, mark, weights = remainder.partition(mark)
    return f"{kind}/{model}{mark}", weights


def absolute_model_name(name: str) -> str:
    """Make the file or folder in a model's name absolute, if it exists."""
    prefix, file = split_model_name(name)
    path = Path(file).expanduser()
    return prefix + os.path.abspath(path) if file and path.exists() else name

"""The SQLite side of an embedded index: which row is which image, which rows are no more, how many there are."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .filters import Filter
from .places import Places, split_model
from .store import ImageEntry, IndexDamaged, IndexDescription, IndexedImage

SCHEMA = """
create table images (
    row integer primary key, path blob unique not null, digest text, size int, time int, width int, height int,
    date real, look int, source blob, label text, domain text, split text, caption text, attributes text
);
create index by_digest on images (digest);
create index by_label on images (label, domain);
create index by_date on images (date);
create table gone (number integer primary key autoincrement, row int not null);
create table state (name text primary key, value);
"""
COLUMNS = ", ".join(ImageEntry._fields)
START = {"count": 0, "generation": 0}


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """What SQLite cannot read is a sentence."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise IndexDamaged(
                f"{folder} is being written to without a pause: try again"
            ) from error
        raise IndexDamaged(
            f"{folder} is damaged ({error}): index the images again, into a new folder"
        ) from error
    except sqlite3.DatabaseError as error:
        raise IndexDamaged(
            f"{folder} is damaged ({error}): index the images again, into a new folder"
        ) from error


class MetadataDb:
    """One connection. A reader's sees the index as it was when it was opened, whatever is written meanwhile."""

    def __init__(self, folder: Path, snapshot: bool = True) -> None:
        self.folder, path = folder, folder / "images.sqlite"
        if not path.is_file():
            raise IndexDamaged(
                f"{folder} is damaged (images.sqlite is gone): index the images again, into a new folder"
            )
        with told(folder):
            self.base = _connected(path) if os.access(folder, os.W_OK) else _read_only(path)
            self.base.execute(
                "pragma synchronous = normal"
            )  # with write-ahead logging that is safe
            if snapshot:
                self.base.execute("begin")
            try:
                self.count, self.generation = (
                    int(self.state("count")),
                    int(self.state("generation")),
                )
            except (TypeError, ValueError):
                raise _lost(folder, "how many images it has") from None
            self._look_around()

    def _look_around(self) -> None:
        homes = self.state("home"), self.state("model_home", self.state("home"))
        # The model has a home of its own: a writer moves images, but knows not which of two models is the right one.
        self.places, self.model_places = (
            Places(self.folder, None if home is None else os.fsdecode(home)) for home in homes
        )

    @staticmethod
    def create(path: Path, home: Path) -> None:
        with sqlite3.connect(path, isolation_level=None) as base:
            base.execute(
                "pragma journal_mode = wal"
            )  # readers and one writer do not wait for each other
            base.executescript("begin;" + SCHEMA + "commit;")
            base.executemany(
                "insert into state values (?, ?)",
                [*START.items(), ("home", os.fsencode(os.path.abspath(home)))],
            )
        base.close()

    def close(self) -> None:
        self.base.close()

    def __del__(self) -> None:
        # With the last view that reads it: a connection refers to itself and would stay open until it is collected.
        if hasattr(self, "base"):
            self.base.close()

    def state(self, name: str, default: Any = None) -> Any:
        found = self.base.execute("select value from state where name = ?", (name,)).fetchone()
        return default if found is None else found[0]

    def set_state(self, **values: Any) -> None:
        self.base.executemany("insert or replace into state values (?, ?)", values.items())

    def gone(self, after: int = 0) -> list[tuple[int, int]]:
        """Number and row of what was removed, in its order."""
        with told(self.folder):
            return self.base.execute(
                "select number, row from gone where number > ? order by number", (after,)
            ).fetchall()

    def rows(self, filter: Filter) -> list[int]:
        condition, values = self.places.filter(filter).sql()
        with told(self.folder):
            found = self.base.execute(
                f"select row from images where {condition} order by row", values
            )
            return [row for (row,) in found]

    def entries(self, rows: Sequence[int]) -> list[ImageEntry]:
        found = dict[int, ImageEntry]()
        with told(self.folder):
            for start in range(0, len(rows), 900):  # as many as SQLite takes at once
                part = rows[start : start + 900]
                marks = ",".join("?" * len(part))
                wanted = self.base.execute(
                    f"select row, {COLUMNS} from images where row in ({marks})", part
                )
                found |= {row: self.places.entry(_entry(values)) for row, *values in wanted}
        try:
            return [found[row] for row in rows]
        except KeyError as row:
            raise _lost(self.folder, f"row {row}") from None

    def images(self) -> dict[str, IndexedImage]:
        with told(self.folder):
            every = self.base.execute(f"select row, {COLUMNS} from images order by row")
            entries = [
                IndexedImage(row, self.places.entry(_entry(values))) for row, *values in every
            ]
        return {known.entry.path: known for known in entries}

    def find(self, digest: str) -> list[int]:
        with told(self.folder):
            found = self.base.execute(
                "select row from images where digest = ? order by row", (digest,)
            )
            return [row for (row,) in found]

    def distinct_values(self, column: str) -> list[str]:
        """Through the index of both: the images are not read."""
        with told(self.folder):
            return [
                name
                for (name,) in self.base.execute(f"select distinct {column} from images")
                if name is not None
            ]

    def rows_of(self, paths: Iterable[str]) -> list[int]:
        find = "select row from images where path = ?"
        found = (self.base.execute(find, (os.fsencode(path),)).fetchone() for path in paths)
        return [row[0] for row in found if row]

    def insert(self, first: int, entries: Sequence[ImageEntry]) -> None:
        rows = [(first + i, *_values(entry)) for i, entry in enumerate(entries)]
        marks = ",".join("?" * (len(ImageEntry._fields) + 1))
        self.base.executemany(f"insert into images (row, {COLUMNS}) values ({marks})", rows)

    def update(self, entries: Sequence[ImageEntry]) -> None:
        settings = ", ".join(f"{name} = ?" for name in ImageEntry._fields[1:])
        values = [(*_values(entry)[1:], os.fsencode(entry.path)) for entry in entries]
        self.base.executemany(f"update images set {settings} where path = ?", values)

    def remove(self, rows: Sequence[int]) -> None:
        self.base.executemany("delete from images where row = ?", [(row,) for row in rows])
        self.base.executemany("insert into gone (row) values (?)", [(row,) for row in rows])

    def renumber(self) -> list[int]:
        """Rows without gaps; returns the old ones in the new order."""
        old = [row for (row,) in self.base.execute("select row from images order by row")]
        # In ascending order every new number is free: it is at most the old one.
        self.base.executemany(
            "update images set row = ? where row = ?", [p for p in enumerate(old) if p[0] != p[1]]
        )
        self.base.execute("delete from gone")
        return old

    def settle(self) -> None:
        """This is home from here on, and every path is what it is now."""
        with self.transaction():
            if self.places:
                self._move()
            paths = (os.fsdecode(path) for (path,) in self.base.execute("select path from images"))
            home = os.fsencode(self.places.nearest(paths))
            self.set_state(
                home=home, model_home=self.state("model_home", self.state("home")) or home
            )
        self._look_around()

    def settle_model(self, made: IndexDescription) -> None:
        """The places of its model and word list are those of this description."""
        with self.transaction():
            paths = split_model(made.model)[1], str(made.words.get("name", ""))
            self.set_state(model_home=os.fsencode(self.model_places.nearest(paths)))

    def _move(self) -> None:
        stored = self.base.execute(
            "select row, path, digest, size, source from images order by row"
        ).fetchall()
        taken = {path: digest for _, path, digest, *_ in stored}
        twice, moved = list[int](), list[tuple[bytes, bytes, int]]()
        for row, path, digest, size, source in stored:
            new, its = map(
                os.fsencode,
                self.places.settled(os.fsdecode(path), size, os.fsdecode(source or b"")),
            )
            if new != path and new in taken:
                if taken[new] == digest:  # the same file, indexed here once more
                    twice.append(row)
                    del taken[path]
                    continue
                new = path  # another's
            taken[new] = taken.pop(path)
            if (new, its) != (path, source):
                moved.append((new, its, row))
        self.remove(twice)
        self.base.executemany("update images set path = ?, source = ? where row = ?", moved)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        with told(self.folder):
            self.base.execute("begin immediate")
            try:
                yield
                self.base.execute("commit")
            except BaseException:
                self.base.execute("rollback")
                raise


def _connected(path: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None, check_same_thread=False)


def _read_only(path: Path) -> sqlite3.Connection:
    """For whoever may not write to the folder."""
    base, log = _connected(path, "mode=ro"), path.with_name(f"{path.name}-wal")
    try:
        base.execute(
            "select 1 from state"
        ).fetchone()  # only now are the files of a writer looked for
        return base
    except sqlite3.OperationalError as error:
        base.close()
        if "locked" in str(error):
            raise
    # Without them SQLite wants to make them, unless told that the file is all there is.
    if log.exists() and log.stat().st_size:
        raise ValueError(
            f"{path.parent} has changes in {log.name} that only who may write to it can read: search it once as such"
        )
    return _connected(path, "mode=ro&immutable=1")


def _lost(folder: Path, what: str) -> IndexDamaged:
    return IndexDamaged(
        f"{folder} is damaged ({what} is lost): index the images again, into a new folder"
    )


def _values(entry: ImageEntry) -> tuple[Any, ...]:
    plain = entry._asdict() | {"path": os.fsencode(entry.path), "source": os.fsencode(entry.source)}
    return tuple(
        (
            plain | {"attributes": json.dumps(dict(entry.attributes)) if entry.attributes else None}
        ).values()
    )


def _entry(values: Sequence[Any]) -> ImageEntry:
    entry = ImageEntry(*values)
    attributes = json.loads(values[-1]) if values[-1] else {}
    # A file's name need not be text.
    return entry._replace(
        path=os.fsdecode(values[0]), source=os.fsdecode(entry.source or b""), attributes=attributes
    )

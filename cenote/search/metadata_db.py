"""The SQLite database of a local index: the entry of each row, removed rows, and counters."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from .store import Filter, ImageEntry, IndexDamaged, IndexedImage, TextHits
from .text_index import TRIGGERS, TextIndex

FILE = "images.sqlite"
SCHEMA = """
create table images (
    row integer primary key, path blob unique not null, digest text, size int, time int,
    width int, height int, date real, look int, source blob, label text, domain text, split text,
    caption text, attributes text, keywords text
);
create index by_digest on images (digest);
create index by_label on images (label, domain);
create index by_date on images (date);
create table gone (number integer primary key autoincrement, row int not null);
create table state (name text primary key, value);
"""
COLUMNS = ", ".join(ImageEntry._fields)
MAX_PARAMETERS = 500  # of a statement; paths are bytes, which JSON cannot contain
UPGRADE_ROWS = 5000  # images whose texts are made at a time


class Relocation:
    """Find the files of an index that was moved from the folder `home` to `folder`.

    Paths are stored absolute, with the folder that the index was in. If the index was moved,
    a file below a common root is where it was relative to the index; only if that does not exist
    and the original does, it stayed where it was.
    """

    def __init__(self, folder: Path, home: bytes | None) -> None:
        self.folder = os.path.realpath(folder)
        self.home = self.folder if home is None else os.fsdecode(home)
        self.moved = self.home != self.folder
        with suppress(OSError):  # the old folder does not exist
            self.moved = not os.path.samefile(self.home, self.folder)

    def path(self, path: str) -> str:
        if not self.moved or not os.path.isabs(path):
            return path
        root = os.path.commonpath((self.home, path))
        if root == os.path.dirname(root):  # they share the root of the file system only
            return path
        moved = os.path.normpath(os.path.join(self.folder, os.path.relpath(path, self.home)))
        if os.path.exists(path) and not os.path.exists(moved):
            return path
        return moved

    def source(self, source: str) -> str:
        """Relocate a folder or file, or the folder of NAME:FOLDER."""
        if os.path.isabs(source):
            return self.path(source)
        name, colon, folder = source.partition(":")
        return name + colon + self.path(folder)


class MetadataDb:
    """One connection. With `snapshot` it sees the index as it was when it was opened."""

    def __init__(self, folder: Path, snapshot: bool = True) -> None:
        self.folder, path = folder, folder / FILE
        with self._errors():
            connect = _connect_read_only
            if os.access(folder, os.W_OK):
                connect = _connect
            self.connection = connect(path)
            self.connection.execute("pragma synchronous = normal")  # safe with write-ahead logging
            if snapshot:
                self.connection.execute("begin")
            try:
                self.count, self.generation = map(int, map(self.state, ("count", "generation")))
            except (TypeError, ValueError):
                raise damaged(folder, "the number of images is lost") from None
            self.relocation = Relocation(folder, self.state("home"))
            self.texts = TextIndex(self.connection)
            self.columns = COLUMNS
            if not self.texts.exists:  # of an earlier version
                self.columns = COLUMNS.replace("keywords", "null")

    @staticmethod
    def create(path: Path, folder: Path) -> None:
        """Write a new database to `path`, for an index in `folder`."""
        with sqlite3.connect(path, isolation_level=None) as connection:
            # With write-ahead logging, readers and one writer do not block each other.
            connection.execute("pragma journal_mode = wal")
            connection.executescript("begin;" + SCHEMA + "commit;")
            TextIndex(connection).create()
            for trigger in TRIGGERS:
                connection.execute(trigger)
            home = os.fsencode(os.path.realpath(folder))
            state = [("count", 0), ("generation", 0), ("home", home)]
            connection.executemany("insert into state values (?, ?)", state)
        connection.close()

    def close(self) -> None:
        # A connection refers to itself: it would stay open until the garbage collection.
        if hasattr(self, "connection"):
            self.connection.close()

    __del__ = close

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into messages about the index."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise IndexDamaged(f"{self.folder} is locked by a writer: try again") from error
            raise damaged(self.folder, str(error)) from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all changes of the block, or none."""
        with self._errors(), self.connection:
            self.connection.execute("begin immediate")
            yield

    def _select(self, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._errors():
            return self.connection.execute(query, values).fetchall()

    def state(self, name: str, default: Any = None) -> Any:
        rows = self._select("select value from state where name = ?", (name,))
        return rows[0][0] if rows else default

    def set_state(self, **values: Any) -> None:
        self.connection.executemany("insert or replace into state values (?, ?)", values.items())

    def removed(self, after: int = 0) -> list[tuple[int, int]]:
        """Return number and row of removals with a number above `after`, in order."""
        query = "select number, row from gone where number > ? order by number"
        return self._select(query, (after,))

    def rows(self, filter: Filter) -> list[int]:
        if self.relocation.moved and filter.folders:
            return self._rows_in_folders(filter)
        condition, values = filter.sql()
        query = f"select row from images where {condition} order by row"
        return [row for (row,) in self._select(query, values)]

    def _rows_in_folders(self, filter: Filter) -> list[int]:
        """Compare the present paths: stored ones are those before the move."""
        condition, values = replace(filter, folders=()).sql()
        prefixes = tuple(folder.rstrip("/") + "/" for folder in filter.folders)
        query = f"select row, path from images where {condition} order by row"
        return [
            row
            for row, path in self._select(query, values)
            if self.relocation.path(os.fsdecode(path)).startswith(prefixes)
        ]

    def entries(self, rows: Sequence[int]) -> list[ImageEntry]:
        query = (
            f"select row, {self.columns} from images where row in (select value from json_each(?))"
        )
        stored = self._select(query, [json.dumps(rows)])
        entries = {row: self._entry(values) for row, *values in stored}
        try:
            return [entries[row] for row in rows]
        except KeyError as row:
            raise damaged(self.folder, f"row {row} is lost") from None

    def images(self) -> dict[str, IndexedImage]:
        return self._images("1", [])

    def find_paths(self, paths: Sequence[str]) -> dict[str, IndexedImage]:
        stored = [os.fsencode(path) for path in paths]
        images = dict[str, IndexedImage]()
        for start in range(0, len(stored), MAX_PARAMETERS):
            group = stored[start : start + MAX_PARAMETERS]
            images |= self._images(f"path in ({', '.join('?' * len(group))})", group)
        return images

    def _images(self, condition: str, values: Sequence[Any]) -> dict[str, IndexedImage]:
        query = f"select row, {self.columns} from images where {condition} order by row"
        images = (
            IndexedImage(row, self._entry(entry)) for row, *entry in self._select(query, values)
        )
        return {image.entry.path: image for image in images}

    def sources(self) -> Iterator[tuple[str, str]]:
        """Yield the stored path and source of every image, without reading all into memory."""
        with self._errors():
            for path, source in self.connection.execute("select path, source from images"):
                yield os.fsdecode(path), os.fsdecode(source or b"")

    def rows_with_digests(self, digests: Sequence[str]) -> dict[str, list[int]]:
        query = (
            "select digest, row from images "
            "where digest in (select value from json_each(?)) order by row"
        )
        rows = dict[str, list[int]]()
        for digest, row in self._select(query, [json.dumps(digests)]):
            rows.setdefault(digest, []).append(row)
        return rows

    def distinct_values(self, column: str) -> list[str]:
        """Read the values from the SQL index of both columns, not from the images."""
        rows = self._select(f"select distinct {column} from images")
        return [value for (value,) in rows if value is not None]

    def find_texts(self, words: Sequence[str]) -> TextHits:
        with self._errors():
            return self.texts.find(words)

    def rows_of(self, paths: Iterable[str]) -> list[int]:
        query = "select row from images where path = ?"
        return [row for path in paths for (row,) in self._select(query, (os.fsencode(path),))]

    def insert(self, first: int, entries: Sequence[ImageEntry]) -> None:
        rows = [(first + i, *_values(entry)) for i, entry in enumerate(entries)]
        marks = ",".join("?" * (len(ImageEntry._fields) + 1))
        self.connection.executemany(f"insert into images (row, {COLUMNS}) values ({marks})", rows)
        self.texts.add([row for row, *_ in rows], entries)

    def update(self, entries: Sequence[ImageEntry]) -> None:
        assignments = ", ".join(f"{name} = ?" for name in ImageEntry._fields[1:])
        values = [(*_values(entry)[1:], os.fsencode(entry.path)) for entry in entries]
        self.connection.executemany(f"update images set {assignments} where path = ?", values)
        rows = {entry.path: self.rows_of([entry.path]) for entry in entries}
        stored = [entry for entry in entries if rows[entry.path]]
        self.texts.add([rows[entry.path][0] for entry in stored], stored)

    def remove(self, rows: Sequence[int]) -> None:
        self.connection.executemany("delete from images where row = ?", [(row,) for row in rows])
        self.connection.executemany("insert into gone (row) values (?)", [(row,) for row in rows])

    def renumber(self) -> list[int]:
        """Number the rows without gaps; return the old numbers in the new order."""
        old = [row for (row,) in self._select("select row from images order by row")]
        # In ascending order every new number is free: it is at most the old one.
        changes = [(new, row) for new, row in enumerate(old) if new != row]
        self.connection.executemany("update images set row = ? where row = ?", changes)
        self.connection.execute("delete from gone")
        self.texts.drop_unused()
        return old

    def upgrade(self) -> None:
        """Store the texts of an index of an earlier version."""
        with self.transaction():
            self.texts.create()
            for trigger in TRIGGERS:
                self.connection.execute(trigger)
            self.connection.execute("alter table images add column keywords text")
            self._store_texts()
        self.columns = COLUMNS

    def _store_texts(self) -> None:
        """Store the texts of all images anew."""
        self.texts.clear()
        cursor = self.connection.execute(f"select row, {COLUMNS} from images order by row")
        while rows := cursor.fetchmany(UPGRADE_ROWS):
            self.texts.add([row for row, *_ in rows], [self._entry(row[1:]) for row in rows])

    def settle(self) -> None:
        """Store the present paths of a moved index, and its present folder."""
        with self.transaction():
            is_moved = self.relocation.moved
            if is_moved:
                self._store_present_paths()
            self.set_state(home=os.fsencode(self.relocation.folder))
            self.relocation = Relocation(self.folder, self.state("home"))
            if is_moved:  # folder names may have changed
                self._store_texts()

    def _store_present_paths(self) -> None:
        stored = self._select("select row, path, source from images order by row")
        used_paths = {path for _, path, _ in stored}
        duplicates, changes = list[int](), list[tuple[bytes, bytes, int]]()
        for row, path, source in stored:
            new = os.fsencode(self.relocation.path(os.fsdecode(path)))
            if new != path and new in used_paths:  # the file was indexed in its new place as well
                duplicates.append(row)
                continue
            used_paths.add(new)
            present = self.relocation.source(os.fsdecode(source or b""))
            changes.append((new, os.fsencode(present), row))
        self.remove(duplicates)
        self.connection.executemany("update images set path = ?, source = ? where row = ?", changes)

    def _entry(self, values: Sequence[Any]) -> ImageEntry:
        entry = ImageEntry(*values)
        # Paths are bytes: a file name need not be text.
        return entry._replace(
            path=self.relocation.path(os.fsdecode(values[0])),
            source=self.relocation.source(os.fsdecode(entry.source or b"")),
            attributes=json.loads(entry.attributes or "{}"),  # type: ignore[arg-type]
        )


def damaged(folder: Path, reason: str) -> IndexDamaged:
    return IndexDamaged(
        f"{folder} is damaged ({reason}): index the images again, into a new folder"
    )


def _connect(path: Path, mode: str = "mode=rw") -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    return sqlite3.connect(uri, uri=True, timeout=60, isolation_level=None, check_same_thread=False)


def _connect_read_only(path: Path) -> sqlite3.Connection:
    """Connect without permission to write to the folder."""
    connection, log = _connect(path, "mode=ro"), path.with_name(f"{path.name}-wal")
    try:
        connection.execute("select 1 from state").fetchone()  # opens the log files of a writer
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if "locked" in str(error):
            raise
    # Without log files SQLite would create them, unless the file is declared immutable.
    if log.exists() and log.stat().st_size:
        raise ValueError(
            f"{path.parent} has changes in {log.name} that need write permission to be read: "
            "search it once with write permission"
        )
    return _connect(path, "mode=ro&immutable=1")


def _values(entry: ImageEntry) -> tuple[Any, ...]:
    values = entry._asdict()
    values["path"], values["source"] = os.fsencode(entry.path), os.fsencode(entry.source)
    values["attributes"] = json.dumps(dict(entry.attributes)) if entry.attributes else None
    return tuple(values.values())

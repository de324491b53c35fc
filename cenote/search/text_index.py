"""Words that are stored with images: classes, folder and file names, captions, keywords.

Different texts are stored once, with the rows of their images: `texts` holds a text with its
field, `text_index` (FTS5) finds texts by a word, `image_texts` names the images. Triggers keep
them correct when images are removed or renumbered.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
import torch

from .store import ImageEntry, TextHits, TextMatch

SCHEMA = (
    "create table texts (id integer primary key, field text, text text, unique (field, text))",
    # Porter's stemmer: "dolphins" finds "dolphin".
    "create virtual table text_index using fts5 (text, content = texts, content_rowid = id, "
    "tokenize = 'porter unicode61 remove_diacritics 2')",
    "create table image_texts (row int, text int, primary key (row, text)) without rowid",
    "create index by_text on image_texts (text, row)",
)
TRIGGERS = (
    "create trigger image_removed after delete on images begin "
    "delete from image_texts where row = old.row; end",
    "create trigger image_renumbered after update of row on images begin "
    "update image_texts set row = new.row where row = old.row; end",
)
MAX_QUERY_WORDS = 32
MAX_TEXT_LENGTH = 2000  # characters of a text that are indexed
STOP_WORDS = {
    "a", "an", "the", "of", "in", "on", "at", "with", "and", "or",
    "to", "for", "from", "by", "is", "are", "my", "this", "that", "its", "it",
}  # fmt: skip
CAMERA_WORDS = {
    "img", "imgp", "image", "dsc", "dscn", "dscf", "pxl", "mvi",
    "vid", "cimg", "gopr", "dji", "pict", "pano", "sam", "hpim", "wp",
}  # fmt: skip
GENERAL_FOLDERS = "photos pictures images dcim data dataset train test val validation"
CASE_CHANGE = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Scripts without spaces: each character is a word.
WITHOUT_SPACES = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
ORDINAL = re.compile(r"^(?!(?:19|20)\d\d(?!\d))\d+[\W_]+(?=[^\W\d])")  # "001." of "001.Albatross"
IDENTIFIER = re.compile(r"^(?=.{8})(?:[a-z]+\d+){2,}|^(?=.{8})(?:\d+[a-z]+){2,}", re.IGNORECASE)
REQUEST = re.compile(r"^\W*(?:(?:a|an|the)\s+)?(?:photo|photograph|picture|image)s?\s+of\b", re.I)


def split_words(text: str, split_case: bool = True) -> list[str]:
    """Return the different words of a text, in order and without stop words if others remain.

    "blackDog" is two words, or one without `split_case`.
    """
    # A file name need not be text, and macOS decomposes its accents.
    text = text[:MAX_TEXT_LENGTH].encode("utf-8", "ignore").decode()
    text = unicodedata.normalize("NFC", text)
    if split_case:
        text = CASE_CHANGE.sub(" ", text)
    text = WITHOUT_SPACES.sub(r" \1 ", text)
    words = {word.casefold(): word for word in re.findall(r"[^\W_]+", text)}
    return [word for key, word in words.items() if key not in STOP_WORDS] or list(words.values())


@lru_cache(4096)  # many images have the same folders and labels
def _joined_words(text: str, split_case: bool) -> str:
    return " ".join(split_words(text, split_case))


def query_words(text: str) -> list[str]:
    """Return the words of a query: "a photo of a dog" asks for "dog"."""
    words = split_words(REQUEST.sub("", text)) or split_words(text)
    return words[:MAX_QUERY_WORDS]


def name_words(name: str) -> list[str]:
    """Return the words of a file name, without numbers, identifiers and the camera's prefix."""
    name = unicodedata.normalize("NFC", name)
    words = [word for word in re.findall(r"[^\W_]+", name) if not IDENTIFIER.match(word)]
    return [
        word
        for word in split_words(re.sub(r"\d+", " ", " ".join(words)))
        if word.casefold() not in CAMERA_WORDS and not (len(word) == 1 and word.isascii())
    ]


def folder_names(entry: ImageEntry) -> list[str]:
    """Return the folders of an image below its DATA argument, and the name of that folder."""
    return _folder_names(os.path.dirname(entry.path), entry.source)


@lru_cache(4096)  # many images have the same folder
def _folder_names(folder: str, source: str) -> list[str]:
    if not os.path.isabs(folder):  # of NAME:IMAGE
        return folder.partition(":")[2].split("/")
    root = folder
    if os.path.isabs(source):
        root = os.path.commonpath((source, folder))
    if root == os.path.dirname(root):  # they share the root of the file system only
        root = folder
    names = os.path.relpath(folder, os.path.dirname(root)).split(os.sep)
    return [name for name in names if name.casefold() not in GENERAL_FOLDERS.split()]


def entry_texts(entry: ImageEntry) -> list[TextMatch]:
    """Return the texts of an image as words; the first field of equal texts remains."""
    name = os.path.splitext(os.path.basename(entry.path))[0]
    texts: list[tuple[str, Iterable[str | None]]] = [
        ("class", [ORDINAL.sub("", entry.label or "")]),
        ("folder", [ORDINAL.sub("", folder) for folder in folder_names(entry)]),
        ("keyword", (entry.keywords or "").splitlines()),
        ("caption", [entry.caption]),
        ("attribute", entry.attributes.values()),
        ("domain", [entry.domain]),
    ]
    matches = dict[str, TextMatch]()
    for field, values in texts:
        for value in values:
            for split_case in (True, False):  # "iPhone" is found by "phone" and by "iphone"
                text = _joined_words(str(value or ""), split_case)
                matches.setdefault(text.casefold(), TextMatch(field, text))
    text = " ".join(name_words(name))
    matches.setdefault(text.casefold(), TextMatch("file name", text))
    matches.pop("", None)
    return list(matches.values())


class TextIndex:
    """The tables of texts in a SQLite database; the caller commits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        query = "select 1 from sqlite_master where name = 'image_texts'"
        self.exists = connection.execute(query).fetchone() is not None

    @classmethod
    def in_memory(cls) -> TextIndex:
        index = cls(sqlite3.connect(":memory:"))
        index.create()
        return index

    def create(self) -> None:
        for statement in SCHEMA:
            self.connection.execute(statement)
        self.exists = True

    def add(self, rows: Sequence[int], entries: Iterable[ImageEntry]) -> None:
        """Store the texts of images, replacing those that their rows had."""
        execute = self.connection.execute
        self.connection.executemany(
            "delete from image_texts where row = ?", [(row,) for row in rows]
        )
        ids, pairs = dict[TextMatch, int](), list[tuple[int, int]]()
        for row, entry in zip(rows, entries, strict=True):
            for text in entry_texts(entry):
                if text not in ids:
                    select = "select id from texts where field = ? and text = ?"
                    stored = execute(select, text).fetchone()
                    if stored is None:
                        insert = "insert into texts (field, text) values (?, ?)"
                        stored = (execute(insert, text).lastrowid,)
                        insert = "insert into text_index (rowid, text) values (?, ?)"
                        execute(insert, (*stored, text.text))
                    ids[text] = stored[0]
                pairs.append((row, ids[text]))
        self.connection.executemany("insert into image_texts values (?, ?)", pairs)

    def clear(self) -> None:
        self.connection.execute("delete from image_texts")
        self.drop_unused()

    def drop_unused(self) -> None:
        """Delete texts of which no image remains."""
        self.connection.execute("delete from texts where id not in (select text from image_texts)")
        self.connection.execute("insert into text_index (text_index) values ('rebuild')")

    def find(self, words: Sequence[str]) -> TextHits:
        """Find the texts that contain one of the words, and their images."""
        execute = self.connection.execute
        texts = dict[int, set[int]]()  # places of matching words by id
        for place, word in enumerate(words):
            query = "select rowid from text_index where text_index match ?"
            for (text,) in execute(query, ('"' + word.replace('"', '""') + '"',)):
                texts.setdefault(text, set()).add(place)
        ids = json.dumps(sorted(texts))
        query = "select id, field, text from texts where id in (select value from json_each(?))"
        stored = {text: TextMatch(field, words) for text, field, words in execute(query, (ids,))}
        query = "select row, text from image_texts where text in (select value from json_each(?))"
        numbers = chain.from_iterable(execute(query, (ids,)))
        pairs = np.fromiter(numbers, np.int64).reshape(-1, 2)
        text_ids, places = np.unique(pairs[:, 1], return_inverse=True)
        used = text_ids.tolist()
        contained = torch.zeros(len(used), len(words), dtype=torch.bool)
        for i, text in enumerate(used):
            contained[i, list(texts[text])] = True
        return TextHits(
            [stored[text] for text in used],
            contained,
            torch.from_numpy(pairs[:, 0].copy()),
            torch.from_numpy(places.reshape(-1)),
        )


def stems_of(texts: Sequence[str]) -> list[list[str]]:
    """Return the different words of each text as Porter's stems, lower case, without accents."""
    connection = TextIndex.in_memory().connection
    rows = list(enumerate(texts))
    connection.executemany("insert into text_index (rowid, text) values (?, ?)", rows)
    connection.execute("create virtual table terms using fts5vocab (text_index, instance)")
    stems = [list[str]() for _ in texts]
    for text, stem in connection.execute("select distinct doc, term from terms"):
        stems[text].append(stem)
    return stems

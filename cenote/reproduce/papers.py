"""The papers' tables and figures, read from tables/PAPER.yaml: what each shows and its commands.

A table that commands can make declares rows and columns. A cell of it is a list of command lines,
`commands`, each with a name. Placeholders: {row} and {column} are replaced by their arguments,
{scale} by those of the scale, {title} by the name of the row, {seed} by the seed, {data} and other
inputs by what the user gives, and the name of an earlier command by the folder that it wrote. A row
or a scale whose commands need different arguments has a mapping from placeholders to them; those of
a scale replace those of a row. The arguments of a row may contain placeholders of the scale; a row
is not made at a scale without them. A row that no command makes is quoted: the paper's numbers only.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib.resources import files

import yaml
from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from ..options import suggest
from ..report.table import markdown_table

PAPERS = ("simpool", "dissertation", "gsp", "sar", "beyond-gap")
STRICT = ConfigDict(extra="forbid")
PLACEHOLDER = re.compile(r"\{([\w-]+)\}")
Arguments = str | dict[str, str]  # of {row} or {scale}, or by placeholder


def by_placeholder(arguments: Arguments, name: str) -> dict[str, str]:
    return {name: arguments} if isinstance(arguments, str) else dict(arguments)


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders that have a value."""
    return PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), text)


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Column:
    """A column: `data` is the input for {data}; `score` replaces the table's."""

    arguments: str = ""  # for {column}
    scales: dict[str, Arguments] = field(default_factory=dict)  # after the table's
    data: str = "data"
    score: str = ""


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Claim:
    """The mean of the cells `higher` is above that of `lower`: patterns, ROW or ROW | COLUMN."""

    says: str
    higher: str
    lower: str


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Item:
    """A table or figure, or several that one command makes ("figure-1, figure-c2")."""

    paper: str
    name: str
    shows: str
    here: str = ""  # Markdown: commands, or why there is none
    result: str = "not measured"  # Markdown: where the documents have a result
    same_as: str = ""  # PAPER/NAME of an equal item
    inputs: dict[str, str] = field(default_factory=dict)  # what the user gives, with a description
    commands: dict[str, str] = field(default_factory=dict)
    scales: dict[str, Arguments] = field(default_factory=dict)  # tiny, small, paper
    metric: str = ""  # what the cells contain
    score: str = ""  # COMMAND/KEY/...: where results.json of a command has the number
    rows: dict[str, Arguments] = field(default_factory=dict)
    columns: dict[str, Column] = field(default_factory=dict)
    values: dict[str, list[float | None]] = field(default_factory=dict)  # the paper's, by row
    quoted: dict[str, list[float | None]] = field(default_factory=dict)  # rows without commands
    absent: list[str] = field(default_factory=list)  # cells that cannot be: ROW | COLUMN
    claims: list[Claim] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.name.replace("-", " ").title()

    @property
    def names(self) -> list[str]:
        return [f"{self.paper}/{name}" for name in self.name.split(", ")]

    @cached_property
    def cells(self) -> list[tuple[str, str]]:
        """The rows and columns of all cells."""
        cells = itertools.product(self.rows, self.columns)
        return [cell for cell in cells if " | ".join(cell) not in self.absent]

    def matching(self, pattern: str) -> list[tuple[str, str]]:
        """Return the cells of a pattern, ROW or ROW | COLUMN."""
        row, _, column = pattern.partition(" | ")
        return [
            (r, c) for r, c in self.cells if fnmatchcase(r, row) and fnmatchcase(c, column or "*")
        ]

    def value(self, row: str, column: str) -> float | None:
        """Return the paper's number."""
        if row not in self.values:
            return None
        return self.values[row][list(self.columns).index(column)]

    def arguments(self, row: str, column: str, scale: str) -> dict[str, str]:
        """Return what {row}, {column}, {scale} and their other placeholders stand for."""
        at = self.columns[column]
        scaled = by_placeholder(self.scales[scale], "scale")
        for name, text in by_placeholder(at.scales.get(scale, ""), "scale").items():
            scaled[name] = f"{scaled.get(name, '')} {text}".strip()
        of_row = {
            name: fill(text, scaled) for name, text in by_placeholder(self.rows[row], "row").items()
        }
        return {**of_row, **scaled, "column": at.arguments}

    def command(self) -> str:
        """Return the command line that makes the table, with placeholders for the inputs."""
        inputs = [f"{name}={name.upper()}" for name in self.inputs]
        if inputs[:1] == ["data=DATA"]:
            inputs[0] = "DATA"
        return f"cenote reproduce {self.names[0]} --data {' '.join(inputs)} -o OUT"


@dataclass(frozen=True, kw_only=True, config=STRICT)
class Paper:
    name: str
    title: str
    about: str  # Markdown
    items: dict[str, Item]  # by name


@cache
def load_paper(name: str) -> Paper:
    """Read the declarations of a paper."""
    text = files(__package__).joinpath("tables", f"{name}.yaml").read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    items = {
        key: Item(**{"paper": name, "name": key, **values})
        for key, values in content.pop("items").items()
    }
    return Paper(name=name, items=items, **content)


def list_items() -> list[Item]:
    return [item for paper in PAPERS for item in load_paper(paper).items.values()]


def find_item(name: str) -> Item:
    """Return an item by one of its names, such as "simpool/table-10"; an equal one's if named."""
    by_name = {known: item for item in list_items() for known in item.names}
    if name not in by_name:
        hint = suggest(name, by_name)
        raise ValueError(f"no table or figure '{name}'{hint} (cenote reproduce lists them)")
    return by_name[by_name[name].same_as or name]


def papers_page() -> str:
    """Return docs/papers.md after its introduction: a section for each paper."""
    sections = []
    for name in PAPERS:
        paper = load_paper(name)
        rows = [[i.title, i.shows, _here(i), _result(i)] for i in paper.items.values()]
        header = ("In the paper", "What it shows", "Here", "Its result")
        table = markdown_table(header, rows, words=range(4))
        sections.append(f"## {paper.title}\n\n{paper.about.strip()}\n\n{table}\n")
    return "\n".join(sections)


def _here(item: Item) -> str:
    if item.same_as:
        paper, name = item.same_as.split("/")
        title = f"{load_paper(paper).title}'s {name.replace('-', ' ').title()}"
        return f"{title}: `cenote reproduce {item.same_as}`"
    if not item.commands:
        return item.here
    return ". ".join(filter(None, [f"`{item.command()}`", item.here]))


def _result(item: Item) -> str:
    if item.same_as:
        return find_item(item.same_as).result
    return item.result

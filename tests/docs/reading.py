"""What the documents tell a reader to type: commands in blocks, commands within sentences, Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ("cenote", "python", "torchrun", "make", "pip")
SHELL = (
    "",
    "bash",
    "sh",
    "console",
)  # languages of fenced blocks that are typed; text, yaml and json are not


class Command(NamedTuple):
    line: int
    words: list[str]

    @property
    def text(self) -> str:
        return shlex.join(self.words)


class Python(NamedTuple):
    line: int
    text: str


def documents() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def steps(path: Path) -> list[Command | Python]:
    """In order: lines of indented and fenced blocks that begin with a program, and blocks of Python."""
    found, fence, before, block = list[Command | Python](), None, "", list[str]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if (mark := re.match(r"\s*```(\w*)", line)) is not None:
            if fence == "python":
                found.append(Python(number - len(block), "\n".join(block)))
            fence, block = (mark[1] if fence is None else None), []
        elif fence == "python":
            block.append(line)
        elif fence in SHELL if fence is not None else line.startswith("    "):
            text = before + line.strip()
            before = text[:-1] if text.endswith("\\") else ""  # it goes on in the next line
            if not before and (words := command_in(text)):
                found.append(Command(number, words))
    return found


def typed(path: Path) -> list[Command]:
    return [step for step in steps(path) if isinstance(step, Command)]


def python_blocks(path: Path) -> list[str]:
    return [step.text for step in steps(path) if isinstance(step, Python)]


def command_in(text: str) -> list[str]:
    """Its words without the comment and without variables in front; none where it is no command."""
    plain = re.sub(r"^([A-Z_]+=\S+ )+", "", text)
    return shlex.split(plain, comments=True) if plain.split(" ")[0] in PROGRAMS else []


def inline(path: Path) -> list[Command]:
    """`cenote ...` and `python ...` within sentences."""
    text = re.sub(
        r"```.*?```",
        lambda block: "\n" * block[0].count("\n"),
        path.read_text("utf-8"),
        flags=re.DOTALL,
    )
    found = []
    for span in re.finditer(r"`([^`]+)`", text):
        if words := command_in(" ".join(span[1].split())):
            found.append(Command(text[: span.start()].count("\n") + 1, words))
    return found

"""The page's own files, read once: a request names one of them or nothing, and no path is ever made of its name."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent / "static"
COLOURS = (
    Path(__file__).parents[1] / "show" / "report" / "style" / "colours.css"
)  # one look: the report's
KINDS = {
    ".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml", ".png": "image/png", ".json": "application/json", ".txt": "text/plain; charset=utf-8",
}  # fmt: skip
SCRIPT = re.compile(rb"<script\b[^>]*>(.*?)</script>", re.S | re.I)


class File(NamedTuple):
    content: bytes
    kind: str
    tag: str  # ETag


def read_static(folder: Path | None = None) -> dict[str, File]:
    found, folder = {}, folder or FOLDER
    for path in (COLOURS, *sorted(folder.glob("*"))):
        if path.suffix in KINDS and path.is_file():
            content = path.read_bytes()
            found[path.name] = File(
                content, KINDS[path.suffix], f'"{sha256(content).hexdigest()[:20]}"'
            )
    return found


def report_policy(page: bytes) -> str:
    """A report is one file: its scripts are allowed by their digests, and it may ask nobody for anything.

    In a sandbox, because a report's folder may come from elsewhere: a script in it must not speak as this page.
    """
    digests = {b64encode(sha256(script).digest()).decode() for script in SCRIPT.findall(page)}
    scripts = " ".join(f"'sha256-{digest}'" for digest in sorted(digests)) or "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; font-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts"
    )

"""Milvus's side of an index: addresses, collections, and its errors as sentences."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ..extras import require
from .store import IndexDescription

NAME = "cenote"  # of the collection, where the address names none
PROPERTY = "cenote"  # of the collection: what the index is made of
KINDS = ("FLAT", "HNSW")
LONGEST = {
    "path": 4096,
    "source": 8192,
    "digest": 64,
    "label": 1024,
    "domain": 1024,
    "split": 256,
    "caption": 16384,
}
NUMBERS = ("size", "time", "width", "height", "look")
MARK = -1  # the row of the sums that says whose they are
SECONDS = 30.0  # a call may take


def connected(address: str) -> tuple[Any, str, str]:
    """A client, the collection's name and the kind of its vector index.

    `http://[user:password@]host:19530[/NAME][?index=hnsw]`, or a `.db` file of Milvus Lite.
    """
    os.environ.setdefault(
        "GRPC_VERBOSITY", "NONE"
    )  # before its first import: else it writes to stderr about pings
    milvus = require("pymilvus", extra="milvus")
    for name in ("pymilvus", "milvus_lite"):  # they print tracebacks of what they raise as well
        logging.getLogger(name).setLevel(logging.CRITICAL)
    parts = urlsplit(address) if "://" in address else None
    if parts is None:
        require("milvus_lite", extra="milvus")
        path = Path(address).expanduser()
        path.parent.mkdir(parents=True, exist_ok=True)
        with sentences(address):
            return milvus.MilvusClient(uri=str(path)), NAME, "FLAT"
    name = parts.path.strip("/") or NAME
    kind = parse_qs(parts.query).get("index", ["flat"])[0].upper()
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,200}", name) or not parts.hostname:
        raise ValueError(
            f"'{shown(address)}' is no address of an index: http://HOST:19530/NAME, NAME of letters, digits and _"
        )
    if kind not in KINDS:
        raise ValueError(
            f"no index '{kind.lower()}' in {shown(address)}: {', '.join(KINDS).lower()}"
        )
    token = f"{parts.username}:{parts.password}" if parts.username else ""
    uri = f"{parts.scheme}://{parts.hostname}:{parts.port or 19530}"
    with sentences(address):
        return milvus.MilvusClient(uri=uri, token=token, timeout=SECONDS), name, kind


def is_missing(address: str) -> bool:
    """A file of Milvus Lite that is not there: connecting would make it."""
    return "://" not in address and not Path(address).expanduser().exists()


@contextmanager
def sentences(address: str) -> Iterator[None]:
    """What Milvus says went wrong, at which address."""
    milvus = require("pymilvus", extra="milvus")
    try:
        yield
    except milvus.MilvusException as error:
        said = " ".join(str(error.message or error).split())
        if address.endswith(".db") and ("lock" in said.lower() or "local milvus" in said.lower()):
            said = "another process may have it open: Milvus Lite takes one at a time"
        raise OSError(f"Milvus at {shown(address)}: {said[:200]}") from error


def shown(address: str) -> str:
    """Without its password."""
    return re.sub("//[^/]*@", "//", address)


def create_collection(
    client: Any, name: str, description: IndexDescription, kind: str = "FLAT"
) -> None:
    types = require("pymilvus", extra="milvus").DataType
    told = json.dumps(description.asdict())
    schema = client.create_schema(description=told)
    schema.add_field("row", types.INT64, is_primary=True)
    schema.add_field("vector", types.FLOAT_VECTOR, dim=description.dim)
    schema.add_field("words", types.ARRAY, element_type=types.INT32, max_capacity=64)
    for text, longest in LONGEST.items():
        schema.add_field(text, types.VARCHAR, max_length=longest)
    for number in NUMBERS:
        schema.add_field(number, types.INT64)
    schema.add_field("date", types.DOUBLE)
    schema.add_field("attributes", types.JSON)
    _create(client, name, schema, kind, {PROPERTY: told})


def create_sums(client: Any, name: str, dim: int, mark: int) -> None:
    """Empty but for the mark of whoever makes them; they count when all rows are there."""
    types = require("pymilvus", extra="milvus").DataType
    if client.has_collection(name):
        client.drop_collection(name)
    schema = client.create_schema()
    schema.add_field("row", types.INT64, is_primary=True)
    schema.add_field("vector", types.FLOAT_VECTOR, dim=dim)
    schema.add_field("images", types.INT64)
    _create(client, name, schema, "FLAT", {})
    client.insert(name, [{"row": MARK, "vector": [0.0] * dim, "images": mark}])


def read_mark(client: Any, name: str) -> int | None:
    """Of whoever last began to change what these sums are of; None where there is none."""
    if not client.has_collection(name):
        return None
    client.load_collection(name)
    found = client.query(
        name, filter=f"row == {MARK}", output_fields=["images"], consistency_level="Strong"
    )
    return int(found[0]["images"]) if found else None


def _create(client: Any, name: str, schema: Any, kind: str, properties: dict[str, str]) -> None:
    client.create_collection(name, schema=schema, consistency_level="Strong", properties=properties)
    index = client.prepare_index_params()
    params = {"M": 32, "efConstruction": 200} if kind == "HNSW" else {}
    index.add_index("vector", index_type=kind, metric_type="IP", params=params)
    try:
        client.create_index(name, index)
    except require("pymilvus", extra="milvus").MilvusException:
        if "vector" not in client.list_indexes(
            name
        ):  # Milvus Lite says "already exists" of an index it just made
            raise
    client.load_collection(name)

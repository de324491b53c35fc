"""What an interrupted `cenote evaluate` left behind, and whether it is of this model and these images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._session import Session


def identity_of(session: Session, masks: bool = False) -> list[Any]:
    """Whatever a change of which makes what was kept worthless: the model, the images, their classes, the seed."""
    from hashlib import sha256

    from cenote.predict.journal import files_digest
    from cenote.predict.thresholds import model_digest

    judged = session.parts.judged
    named = sha256("\n".join(judged.classes).encode() + judged.labels.tobytes()).hexdigest()
    return [
        model_digest(session.run),
        judged.name,
        session.parts.name,
        files_digest(judged, masks),
        named,
        session.seed,
    ]


def kept_passes(session: Session, protocol: str, masks: bool = False) -> dict[str, Any]:
    """Passes that are done, in a file beside the pictures: a killed run goes on behind them."""
    if session.out is None:
        return {}
    from cenote.data.files import write_atomically

    path = session.out / f".{protocol}.json"
    identity = identity_of(session, masks)
    try:
        found = json.loads(path.read_text())
        done = dict(found["done"]) if found["of"] == identity else {}
    except (OSError, ValueError, KeyError, TypeError):
        done = {}

    def keep(name: str, value: dict[str, Any]) -> None:
        done[name] = value
        with write_atomically(path) as temporary:
            temporary.write_text(json.dumps({"of": identity, "done": done}))

    session.finished.append(path)
    return {"kept": done, "keep": keep}


def goes_on(session: Session, folder: Path) -> bool:
    """Whether there is a checkpoint of this very model and these images; any other makes room."""
    from cenote.data.files import write_atomically
    from cenote.predict.journal import files_digest

    checkpoint, of = folder / "checkpoint.pt", folder / ".of.json"
    trained = session.memory("linear segmentation")
    identity = json.dumps([*identity_of(session, masks=True), files_digest(trained, masks=True)])
    session.finished += [checkpoint, of]
    if checkpoint.exists() and of.is_file() and of.read_text() == identity:
        return True
    checkpoint.unlink(missing_ok=True)
    with write_atomically(of) as temporary:
        temporary.write_text(identity)
    return False

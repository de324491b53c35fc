"""`cenote <command>`: find the command, parse its options, run it, turn errors into sentences."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from .. import __version__
from ..allocator import keep_memory
from ..extras import MissingExtra
from ._logging import show_messages
from ._page import ASKED

# Each command is the function `run` of the module of its name, parsed by tyro.
COMMANDS = {
    "demo": (
        "cenote.cli.demo",
        "All of it in some minutes, without a download; then look at the report.",
    ),
    "landscape": (
        "cenote.cli.landscape",
        "The landscape of pooling methods, one row of Algorithm 1 each.",
    ),
    "pools": ("cenote.cli.pools", "Every pool with its parameters and FLOPs, or one pool in full."),
    "data": (
        "cenote.cli.data",
        "What is in a data set: counts, splits, broken files, duplicates, a contact sheet.",
    ),
    "world": ("cenote.cli.world", "Draw a data set of which every truth is known: no downloads."),
    "fit": (
        "cenote.cli.fit",
        "Train a model on labelled images: pool and head alone, or all of it.",
    ),
    "dino": ("cenote.cli.dino", "Train a model without labels: small crops against large ones."),
    "moco": ("cenote.cli.moco", "Train a model without labels: a view against all other images."),
    "metric": (
        "cenote.cli.metric",
        "Train vectors that tell classes apart, also classes that were never seen.",
    ),
    "losses": (
        "cenote.cli.losses",
        "The losses of metric learning: five small functions each, in one table.",
    ),
    "tournament": (
        "cenote.cli.tournament",
        "Which pooling suits your images: every pool on one backbone.",
    ),
    "sweep": (
        "cenote.cli.sweep",
        "Train many times with random settings, keep the best on validation, test it once.",
    ),
    "recipes": (
        "cenote.cli.recipes",
        "The papers' settings by name, or one recipe with its command.",
    ),
    "evaluate": (
        "cenote.cli.evaluate",
        "How good a saved model is: classes, boxes, objects, backgrounds, corruptions.",
    ),
    "localize": (
        "cenote.cli.localize",
        "Boxes and masks of your photographs, from a model that never saw a box.",
    ),
    "discover": ("cenote.cli.discover", "Objects in your photographs, found without any labels."),
    "clip": ("cenote.cli.clip", "Train a small image-text model on captions."),
    "index": (
        "cenote.cli.index",
        "Make images searchable: an index that is filled, and kept up to date.",
    ),
    "search": ("cenote.cli.search", "Find images by image, by text, or by both."),
    "evaluate-search": (
        "cenote.cli.evaluate_search",
        "How well composed queries find their images: domains changed, attributes changed.",
    ),
    "serve": (
        "cenote.cli.serve",
        "The page: look, compare, search, follow a tournament, in a browser.",
    ),
    "cache": ("cenote.cli.cache", "The features of frozen backbones that are kept on disk."),
    "attend": (
        "cenote.cli.attend",
        "Show where a model looks: overlays, masks and boxes of your photographs.",
    ),
    "models": ("cenote.cli.models", "The backbones that work, with a check of every architecture."),
    "export": ("cenote.cli.export", "Write a model as ONNX or as a torch.export program."),
    "bench": (
        "cenote.cli.bench",
        "Time and memory of pools and of whole models, against GAP and rival layers.",
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    command, *rest = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    ASKED.set(tuple(argv or ()))  # the command that a report names
    if (
        argv is None and command != "bench"
    ):  # in a process of our own, and not where others' layers are timed
        keep_memory()
        if "OMP_WAIT_POLICY" not in os.environ:
            # Read when torch is loaded. Threads of libgomp that wait for each other spin for milliseconds; beside other
            # work that takes the cores away from those they wait for. Spinning less costs nothing on a quiet machine.
            os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    show_messages()
    try:
        code = dispatch(command, rest)
        sys.stdout.flush()  # here, where a reader that has left (`| head`) is still caught
        return code
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # Python flushes once more at exit
        return 141
    except KeyboardInterrupt:
        return 130
    except SystemExit as stop:  # tyro, after its help or a message of its own
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:
        if os.environ.get("CENOTE_DEBUG"):
            raise
        return fail(command, error)


def dispatch(command: str, rest: list[str]) -> int:
    if command in ("-h", "--help"):
        print(help_text())
        return 0
    if command == "--version":
        print(f"cenote {__version__}")
        return 0
    if command not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(command, COMMANDS, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        print(f"cenote: no command '{command}'{hint} (cenote -h lists them)", file=sys.stderr)
        return 2
    import tyro  # only now: the help above must not wait for it

    tyro.cli(import_module(COMMANDS[command][0]).run, prog=f"cenote {command}", args=rest)
    return 0


def help_text() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: cenote <command> [options]",
            "",
            "Feature maps become vectors, and you see where they came from.",
            "",
            *lines,
            "",
            "cenote <command> -h shows a command's options; cenote --version; CENOTE_DEBUG=1 shows tracebacks.",
        ]
    )


def fail(command: str, error: Exception) -> int:
    """One sentence on stderr; 2 if the user's input was wrong, 1 if something else went wrong."""
    if isinstance(error, OSError) and error.strerror:
        sentence = f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    elif isinstance(error, ValueError | OSError | MissingExtra):
        sentence = str(error)
    else:
        sentence = f"{type(error).__name__}: {error} (CENOTE_DEBUG=1 shows where)"
    print(f"cenote {command}: {sentence}", file=sys.stderr)
    return 2 if isinstance(error, ValueError | OSError) else 1

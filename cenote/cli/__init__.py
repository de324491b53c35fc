"""`cenote <command>`: parse the options of a command, run it, report errors as one sentence."""

from __future__ import annotations

import inspect
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from io import TextIOWrapper

from ..allocator import keep_memory
from ..extras import MissingExtra
from ..options import option_message, suggest
from ..version import __version__
from ._messages import ARGUMENTS, RESUMES, show_messages

# Each command is the function `run` of the module of its name in this package, parsed by tyro, or
# the function of its name in one of MODULES.
GROUPS = {
    "Start": {
        "demo": "Try everything in a few minutes without a download, then read the report.",
        "data": "Inspect a data set: counts, splits, broken files, duplicates, a contact sheet.",
        "tournament": "Compare every pool on one backbone and your images.",
        "fit": "Train a model on labelled images: pool and head only, or all of it.",
        "serve": "Open the page: attention maps, comparison, search, tournaments, in a browser.",
    },
    "Use a model on photographs": {
        "attend": "Show where a model looks: overlays, masks and boxes of your photographs.",
        "localize": "Predict boxes and masks of photographs; no boxes and no training are needed.",
        "discover": "Find objects in your photographs without any labels.",
        "predict": "Predict the classes of photographs: printed, or a CSV file.",
        "embed": "Write the vectors of images to a file: .npy or .parquet.",
        "export": "Export a model as ONNX or as a torch.export program.",
    },
    "Search": {
        "index": "Make images searchable: create an index and keep it up to date.",
        "search": "Find images by image, by text, or by both.",
        "clip": "Train a small image-text model on captions.",
        "evaluate-search": "Evaluate composed queries: changed domains, changed attributes.",
    },
    "Train and evaluate": {
        "metric": "Train an embedding that separates classes, also unseen ones.",
        "dino": "Train a model without labels: small crops against large ones.",
        "moco": "Train a model without labels: one view against all other images.",
        "sweep": "Train with random settings, choose the best on validation, test it once.",
        "probe": "Compare frozen backbones: k-NN, linear and efficient probing, side by side.",
        "evaluate": "Evaluate a saved model: classes, boxes, objects, backgrounds, corruptions.",
    },
    "Papers": {
        "recipes": "List the papers' settings by name, or show one recipe with its command.",
        "reproduce": "Make a table of the papers on your images, beside the paper's numbers.",
        "world": "Draw a synthetic data set with complete ground truth; no download.",
        "bench": "Measure time and memory of pools and models, against GAP and other libraries.",
    },
    "List": {
        "pools": "List every pool with its parameters and FLOPs, or show one pool in full.",
        "landscape": "Print the landscape of pooling methods, one row of Algorithm 1 each.",
        "losses": "Print the losses of metric learning: five small functions each, in one table.",
        "models": "List the supported backbones, with a check of every architecture.",
        "cache": "Show or clear the cached features of frozen backbones.",
    },
}
COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}
MODULES = {
    **dict.fromkeys(("landscape", "losses", "models", "pools", "recipes"), "listings"),
    **dict.fromkeys(("dino", "moco"), "self_supervised"),
    "sweep": "fit",
    "embed": "predict",
}
HELP = """\
usage: cenote <command> [options]

Which pooling suits your images, where a model looks, boxes without box labels, and search.
{commands}

cenote <command> -h shows a command's options; cenote --version; CENOTE_DEBUG=1 shows tracebacks."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code: 0 done, 1 failed, 2 wrong input, 130 interrupted."""
    command, *arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    ARGUMENTS.set(tuple(argv or ()))
    if argv is None and command != "bench":  # bench times other libraries' layers, too
        keep_memory()
        if "OMP_WAIT_POLICY" not in os.environ:
            # Read when torch is loaded. Waiting threads of libgomp spin for milliseconds, which
            # takes the cores away from the threads they wait for when the machine is busy.
            os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    if argv is None and isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # file names that the terminal lacks
    show_messages()
    try:
        code = dispatch(command, arguments)
        sys.stdout.flush()  # raises BrokenPipeError here, not at exit, when the reader is gone
        return code
    except BrokenPipeError:
        # Python flushes stdout once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt as interrupt:
        return report_interruption(command, arguments, RESUMES in interrupt.args)
    except SystemExit as stop:  # tyro, after its help or its own message
        return int(stop.code or 0)
    except Exception as error:
        if os.environ.get("CENOTE_DEBUG"):
            raise
        return report_error(command, error)


def dispatch(command: str, arguments: list[str]) -> int:
    """Print the help or the version, or run the command."""
    if command in ("-h", "--help"):
        lines = []
        for title, commands in GROUPS.items():
            lines += [f"\n{title}"]
            lines += [f"  {name:15}  {summary}" for name, summary in commands.items()]
        print(HELP.format(commands="\n".join(lines)))
        return 0
    if command == "--version":
        print(f"cenote {__version__}")
        return 0
    if command not in COMMANDS:
        hint = suggest(command, COMMANDS)
        print(f"cenote: no command '{command}'{hint} (cenote -h lists them)", file=sys.stderr)
        return 2
    import tyro  # only now: the help must not wait for it

    function = command_function(command)
    if command == "search":
        import_module(f"{__name__}.search").check_arguments(arguments)
    tyro.cli(function, prog=f"cenote {command}", args=arguments)
    return 0


def command_function(command: str) -> Callable[..., None]:
    """Import a command."""
    if command in MODULES:
        return getattr(import_module(f"{__name__}.{MODULES[command]}"), command)
    return import_module(f"{__name__}.{command.replace('-', '_')}").run


def report_interruption(command: str, arguments: list[str], resumes: bool) -> int:
    """Print one sentence on stderr with the command that resumes; return 130."""
    sentence = "interrupted"
    if resumes:
        words = [command, *arguments]
        has_option = "resume" in inspect.signature(command_function(command)).parameters
        if has_option and "--resume" not in words:
            words.append("--resume")
        sentence += f"; resume with: {shlex.join(['cenote', *words])}"
    if os.environ.get("RANK", "0") == "0":
        print(f"cenote {command}: {sentence}", file=sys.stderr)
    return 130


def report_error(command: str, error: Exception) -> int:
    """Print one sentence on stderr; return 2 for wrong input and 1 for any other error."""
    if isinstance(error, OSError) and error.strerror:
        details = [error.strerror, error.filename]
        sentence = ": ".join(str(detail) for detail in details if detail)
    elif isinstance(error, ValueError | OSError | MissingExtra):
        sentence = option_message(error)
    elif isinstance(error, RecursionError):
        sentence = "a file is nested too deeply (CENOTE_DEBUG=1 shows which)"
    else:
        sentence = f"{type(error).__name__}: {error} (CENOTE_DEBUG=1 shows where)"
    print(f"cenote {command}: {sentence}", file=sys.stderr)
    if isinstance(error, ValueError | OSError):
        return 2
    return 1

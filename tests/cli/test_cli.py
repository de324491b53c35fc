"""The commands as a user runs them: real processes, real exit codes."""

import json
import os
import subprocess
import sys
import time

import pytest

import cenote
from cenote.cli import COMMANDS, main
from cenote.extras import MissingExtra, require


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cenote", *argv]
    return subprocess.run(command, capture_output=True, encoding="utf-8", env={**os.environ, **env}, timeout=120)


def test_help_lists_every_command_at_once() -> None:
    times = []
    for _ in range(3):  # the best of three: the machine may be busy
        start = time.perf_counter()
        done = run("-h")
        times.append(time.perf_counter() - start)
    assert done.returncode == 0 and not done.stderr
    assert all(command in done.stdout and summary in done.stdout for command, (_, summary) in COMMANDS.items())
    assert min(times) < 0.5
    assert run().stdout == done.stdout


def test_version() -> None:
    assert run("--version").stdout == f"cenote {cenote.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str) -> None:
    done = run(command, "-h")
    assert done.returncode == 0, done.stderr
    assert f"cenote {command}" in done.stdout and "--" in done.stdout


def test_a_typo_in_the_command_gets_a_suggestion() -> None:
    done = run("landscap")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == "cenote: no command 'landscap'; did you mean 'landscape'? (cenote -h lists them)\n"


def test_a_typo_in_an_option_gets_a_suggestion() -> None:
    done = run("landscape", "--stile", "json")
    assert done.returncode == 2 and not done.stdout
    assert "--stile" in done.stderr and "--style" in done.stderr and "Traceback" not in done.stderr


BAD_GRID = "cenote pools: a grid is height x width, for example 14x14; got '{}'\n"


def test_a_bad_grid_is_one_sentence() -> None:
    done = run("pools", "--grid", "14")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", BAD_GRID.format("14"))


@pytest.mark.parametrize("grid", ["14x", "0x7", "axb", "7x7x7", "-1x7", ""])
def test_every_bad_grid_is_one_sentence(grid: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pools", f"--grid={grid}"]) == 2
    assert capsys.readouterr() == ("", BAD_GRID.format(grid))


def test_an_unknown_pool_is_one_sentence() -> None:
    done = run("pools", "maxx")
    assert done.returncode == 2 and done.stderr.startswith("cenote pools: no pool 'maxx'; did you mean 'max'?")


def test_debug_shows_the_traceback() -> None:
    assert "Traceback" in run("pools", "maxx", CENOTE_DEBUG="1").stderr


def test_landscape_as_json_has_every_pool() -> None:
    done = run("landscape", "--style", "json")
    assert done.returncode == 0, done.stderr
    assert [row["name"] for row in json.loads(done.stdout)] == cenote.list_pools()


def test_pools_as_json_has_every_pool_with_its_cost() -> None:
    done = run("pools", "--dim", "64", "--grid", "5x7", "--style", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == cenote.list_pools()
    for row in rows:
        pool = cenote.create_pool(row["name"], 64)
        assert row["parameters"] == sum(p.numel() for p in pool.parameters())
        assert row["source"] and row["what"] and not row["problem"]


def test_the_table_of_pools_fits_a_terminal() -> None:
    table, notes = run("pools").stdout.split("\n\n")
    assert max(map(len, table.splitlines())) <= 140
    assert [line.split()[0] for line in table.splitlines()[2:]] == cenote.list_pools()
    assert "384 channels on a 14x14 grid" in notes


def test_one_pool_in_full() -> None:
    assert run("pools", "gap").stdout.startswith("# GAP (`gap`)")


def test_one_pool_as_json() -> None:
    row = json.loads(run("pools", "gap", "--style", "json").stdout)
    assert (row["name"], row["parameters"], row["options"]) == ("gap", 0, {})


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["pools", "--dim", "0"], "at least one channel, got --dim 0"),
        (["pools", "gap", "--dim", "-3"], "at least one channel, got --dim -3"),
        (["bench", "pools", "--pools", "gap", "--sizes", "1x2x1x1", "--rounds", "0"], "at least 1, got 0"),
    ],
)
def test_a_number_out_of_range_is_a_sentence(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert not out and sentence in err


def test_a_reader_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does, but without a race
    done = subprocess.run(
        [sys.executable, "-m", "cenote", "landscape"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120
    )
    os.close(writer)
    assert done.returncode == 141 and done.stderr == ""


def in_process(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def dispatch(command: str, rest: list[str]) -> int:
        raise error

    monkeypatch.setattr("cenote.cli.dispatch", dispatch)
    monkeypatch.delenv("CENOTE_DEBUG", raising=False)
    return main(["pools"])


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (ValueError("what was wrong"), 2, "cenote pools: what was wrong\n"),
        (
            FileNotFoundError(2, "No such file or directory", "a.png"),
            2,
            "cenote pools: No such file or directory: a.png\n",
        ),
        (MissingExtra("install it"), 1, "cenote pools: install it\n"),
        (RuntimeError("broken"), 1, "cenote pools: RuntimeError: broken (CENOTE_DEBUG=1 shows where)\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_sentences(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, sentence: str
) -> None:
    assert in_process(monkeypatch, error) == code
    assert capsys.readouterr() == ("", sentence)


def test_a_missing_extra_says_how_to_get_it() -> None:
    with pytest.raises(MissingExtra, match=r"needs the package 'no_such_module.*pip install 'cenote\[onnx\]'"):
        require("no_such_module.part", extra="onnx")
    assert require("math", extra="onnx").pi > 3


@pytest.mark.parametrize(("given", "spins"), [({}, "20000"), ({"OMP_WAIT_POLICY": "active"}, "None")])
def test_threads_that_wait_give_way_to_other_work(given: dict[str, str], spins: str) -> None:
    """Set before torch is loaded, which reads it then; who chose a policy keeps it."""
    script = (
        "import os, sys; from cenote.cli import main; sys.argv = ['cenote', '--version']; main();"
        "print('torch' in sys.modules, os.environ.get('GOMP_SPINCOUNT'))"
    )
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_WAIT", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], env={**environment, **given}, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1:] == [f"False {spins}"]

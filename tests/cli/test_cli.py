"""`cenote`, its help and its exit codes; `cenote landscape` and `cenote pools`."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cenote
from cenote.cli import COMMANDS, main
from cenote.cli._messages import check_photos
from cenote.extras import MissingExtra, require


def run(*argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`cenote ARGV` as a process; only for what a process alone shows: each takes half a second or more."""
    command = [sys.executable, "-m", "cenote", *argv]
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", env={**os.environ, **env}, timeout=120
    )


def test_help_lists_every_command() -> None:
    done = run("-h")
    assert done.returncode == 0 and not done.stderr
    assert all(
        command in done.stdout and summary in done.stdout for command, summary in COMMANDS.items()
    )
    assert run().stdout == done.stdout


def test_help_imports_nothing_slow() -> None:
    script = "import sys; from cenote.cli import main; main(['-h']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert not {"torch", "numpy", "PIL", "tyro"} & set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        "attend nowhere",
        "tournament nowhere -o run",
        "export run -o nowhere.onx",
        "search nowhere --text dog",
    ],
)
def test_a_wrong_path_is_reported_before_torch_is_imported(arguments: str) -> None:
    script = (
        "import sys; from cenote.cli import main; code = main(sys.argv[1:]); "
        "print(code, 'torch' in sys.modules)"
    )
    command = [sys.executable, "-c", script, *arguments.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"] and "nowhere" in done.stderr


def test_a_path_may_be_a_frame_of_a_video_in_the_home_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.mp4").touch()
    check_photos(["~/a@00h00m02s.mp4"])
    with pytest.raises(ValueError, match="b@00h00m02s"):
        check_photos(["~/b@00h00m02s.mp4"])


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"cenote {cenote.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "-h"]) == 0
    text, error = capsys.readouterr()
    assert f"cenote {command}" in text and "--" in text and "None" not in text and not error


def test_a_typo_in_the_command_gets_a_suggestion() -> None:
    done = run("landscap")
    assert done.returncode == 2 and not done.stdout
    assert (
        done.stderr
        == "cenote: no command 'landscap'; did you mean 'landscape'? (cenote -h lists them)\n"
    )


def test_a_typo_in_an_option_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--stile", "json"]) == 2
    text, error = capsys.readouterr()
    assert not text and "--stile" in error and "--style" in error


def test_debug_shows_the_traceback() -> None:
    done = run("data", "no-such-folder", CENOTE_DEBUG="1")
    assert done.returncode == 1 and "Traceback" in done.stderr and "no-such-folder" in done.stderr
    done = run("data", "no-such-folder")
    assert (
        done.returncode == 2 and "Traceback" not in done.stderr and "no-such-folder" in done.stderr
    )


def test_a_closed_pipe_is_not_an_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does, but without a race
    command = [sys.executable, "-m", "cenote", "data", "--list"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    assert done.returncode == 141 and done.stderr == ""


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
        (
            RuntimeError("broken"),
            1,
            "cenote pools: RuntimeError: broken (CENOTE_DEBUG=1 shows where)\n",
        ),
        (KeyboardInterrupt(), 130, "cenote pools: interrupted\n"),
    ],
)
def test_errors_become_sentences(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    sentence: str,
) -> None:
    def dispatch(command: str, rest: list[str]) -> int:
        raise error

    monkeypatch.setattr("cenote.cli.dispatch", dispatch)
    assert main(["pools"]) == code
    assert capsys.readouterr() == ("", sentence)


def test_a_missing_extra_names_the_package_and_the_extra() -> None:
    with pytest.raises(MissingExtra, match=r"'no_such_module.*'cenote\[onnx\]'"):
        require("no_such_module.part", extra="onnx")
    assert require("math", extra="onnx").pi > 3


@pytest.mark.parametrize(
    ("environment", "spin_count"),
    [({}, "20000"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    ids=["default", "chosen"],
)
def test_waiting_threads_spin_only_briefly(environment: dict[str, str], spin_count: str) -> None:
    """The variable is set before torch, which reads it, is imported; a policy that the user chose is not changed."""
    script = (
        "import os, sys; from cenote.cli import main; sys.argv = ['cenote', '--version']; main();"
        "print('torch' in sys.modules, os.environ.get('GOMP_SPINCOUNT'))"
    )
    inherited = {
        key: value for key, value in os.environ.items() if not key.startswith(("OMP_WAIT", "GOMP_"))
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[1:] == [f"False {spin_count}"]


def test_landscape_as_json_has_every_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["landscape", "--style", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == cenote.list_pools()


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--grid", "14"], "a grid is height x width, for example 14x14; got '14'"),
        (["--dim", "0"], "--dim must be at least 1, got 0"),
        (["gap", "--dim", "-3"], "--dim must be at least 1, got -3"),
        (["maxx"], "no pool 'maxx'; did you mean 'max'?"),
    ],
)
def test_sentences_of_pools(
    argv: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pools", *argv]) == 2
    text, error = capsys.readouterr()
    assert not text and error.startswith(f"cenote pools: {sentence}") and error.count("\n") == 1


@pytest.mark.parametrize("grid", ["14x", "0x7", "axb", "7x7x7", "-1x7", ""])
def test_bad_grids(grid: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pools", f"--grid={grid}"]) == 2
    text, error = capsys.readouterr()
    assert not text and repr(grid) in error and error.count("\n") == 1


def test_pools_as_json_have_their_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pools", "--dim", "64", "--grid", "5x7", "--style", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == cenote.list_pools()
    for row in rows:
        pool = cenote.create_pool(row["name"], 64)
        assert row["parameters"] == sum(p.numel() for p in pool.parameters())
        assert row["source"] and row["what"] and not row["problem"]


def test_the_table_of_pools_is_at_most_140_columns_wide(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["pools"]) == 0
    table, notes = capsys.readouterr().out.split("\n\n")
    assert max(map(len, table.splitlines())) <= 140
    assert [line.split()[0] for line in table.splitlines()[2:]] == cenote.list_pools()
    assert "384" in notes and "14x14" in notes


def test_one_pool(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pools", "gap"]) == 0
    assert capsys.readouterr().out.startswith("# GAP (`gap`)")
    assert main(["pools", "gap", "--style", "json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["parameters"], row["options"]) == ("gap", 0, {"local": None})


def test_bench_takes_at_least_one_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "pools", "--pools", "gap", "--sizes", "1x2x1x1", "--rounds", "0"]) == 2
    text, error = capsys.readouterr()
    assert not text and re.search(r"\brounds\b.*\b0\b", error)


def test_bench_beside_another_process(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--sizes", "1x2x1x1", "--rounds", "1", "--json"]
    assert main(["bench", "pools", "--pools", "gap", *small, "--busy", "1"]) == 0
    report = json.loads(capsys.readouterr().out)
    gap = report["sizes"][0]["pools"][0]
    assert report["busy"] == 1 and gap["forward_median_ms"] >= gap["forward_ms"] > 0

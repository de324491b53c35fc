"""No cell of a CSV file is a formula, and file and class names need not be UTF-8."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from cenote.cli import main
from cenote.data import open_dataset, read_list
from cenote.data.csv_files import quote_formula, unquote_formula, write_csv
from cenote.data.splits import split
from tests.toy_models import narrow_resnet

FORMULA = '=HYPERLINK("http://evil.example")'


@pytest.fixture
def odd_names(tmp_path: Path) -> Path:
    """Photographs in folders a and \\xff, with names that are not UTF-8 either."""
    for i in range(8):
        folder = os.path.join(os.fsencode(tmp_path), b"photos", (b"a", b"\xff")[i % 2])
        os.makedirs(folder, exist_ok=True)
        name = os.path.join(folder, b"%d \xfe.png" % i)
        Image.effect_noise((32, 32), 50 + i).convert("RGB").save(os.fsdecode(name))
    return tmp_path / "photos"


def test_formulas_are_quoted_and_read_back(tmp_path: Path) -> None:
    for text in (FORMULA, "+1+1", "-a", "@a", "\tx", "'=x", "''-x", "dog", "'", ""):
        assert not str(quote_formula(text)).startswith(("=", "+", "-", "@", "\t"))
        assert unquote_formula(str(quote_formula(text))) == text
    for number in (-1.5, "-1.5", "+1"):
        assert quote_formula(number) == number
    Image.new("RGB", (9, 9)).save(tmp_path / "-1.png")
    with write_csv(tmp_path / "l.csv") as table:
        table.write(["file", "label"])
        table.write(["-1.png", FORMULA])
    assert "'=HYPER" in (tmp_path / "l.csv").read_text()
    dataset = read_list(tmp_path / "l.csv")
    assert dataset.classes == [FORMULA] and dataset.path(0).exists()


def test_predicted_classes_are_no_formulas(tmp_path: Path, odd_names: Path) -> None:
    model = narrow_resnet(num_classes=2, size=32)
    model.class_names = [FORMULA, FORMULA + "2"]
    model.save(tmp_path / "m")
    out = tmp_path / "classes.csv"
    assert main(["predict", str(tmp_path / "m"), str(odd_names), "-o", str(out)]) == 0
    with out.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        rows = list(csv.reader(file))
    assert all(row[2].startswith("'=") for row in rows[1:]) and len(rows) > 8
    assert all(os.path.exists(row[0]) for row in rows[1:])


def test_names_that_are_not_utf_8(odd_names: Path) -> None:
    dataset = open_dataset(odd_names)
    assert dataset.classes == ["\\xff", "a"]
    assert all(dataset.path(i).exists() for i in range(len(dataset)))
    splits = split(dataset)
    assert len(splits.train) + len(splits.val) == 8
    assert splits.fingerprint()


def test_fit_with_names_that_are_not_utf_8(odd_names: Path, tmp_path: Path) -> None:
    arguments = ["--backbone", "vit_micro", "--scratch", "--size", "32", "--epochs", "1"]
    assert main(["fit", str(odd_names), "-o", str(tmp_path / "run"), *arguments]) == 0


def test_a_terminal_without_the_characters(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "ä.png")
    (tmp_path / "classes").mkdir()
    (tmp_path / "ä.png").rename(tmp_path / "classes" / "ä.png")
    (tmp_path / "classes").rename(tmp_path / "grün")
    ended = subprocess.run(
        [sys.executable, "-m", "cenote", "data", str(tmp_path)],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr
    assert b"\\xb7" in ended.stdout

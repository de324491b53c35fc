"""Configurations: values get their field's type or an error with a suggestion, flags reach fields."""

import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic.dataclasses import dataclass

from cenote.cli._training import given_options, options_type
from cenote.train.config import STRICT, RunConfig, default_config, flags_of
from cenote.train.configure import configure, parse_pairs
from cenote.train.recipes import read_fields
from cenote.train.reports import FitReport

COMMANDS = ("fit", "metric", "dino", "moco", "clip")


@dataclass(frozen=True, config=STRICT)
class Example:
    count: int = 1
    rate: float = 0.5
    limit: float | None = None
    kind: Literal["a", "b"] = "a"
    choice: Literal["x"] | None = None
    path: Path | None = None
    ends: tuple[float, float] = (0.0, 1.0)
    names: tuple[Literal["in", "out"], ...] = ()
    flag: bool = False
    options: dict[str, Any] | None = None


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("rate", "1e-3", 1e-3),  # as YAML reads it
        ("rate", 2, 2.0),
        ("limit", None, None),
        ("limit", 3, 3.0),
        ("path", "a/b", Path("a/b")),
        ("choice", "x", "x"),
        ("ends", [1, 2], (1.0, 2.0)),
        ("names", ["in", "out"], ("in", "out")),
        ("options", {"a": 1}, {"a": 1}),
    ],
)
def test_values_get_the_type_of_their_field(key: str, value: Any, expected: Any) -> None:
    found = getattr(read_fields(Example(), {key: value}, ""), key)
    assert found == expected and type(found) is type(expected)


@pytest.mark.parametrize(
    ("values", "cause"),
    [
        ({"count": 1.5}, r"x\.count must be a valid integer.*, got 1\.5"),
        ({"rate": "fast"}, r"x\.rate must be a valid number.*, got 'fast'"),
        ({"flag": 3}, r"x\.flag must be a valid boolean.*, got 3"),
        ({"limit": "low"}, r"x\.limit must be a valid number"),
        ({"kind": "c"}, r"x\.kind must be 'a' or 'b', got 'c'"),
        ({"names": ["inn"]}, r"got 'inn'; did you mean 'in'\?"),
        ({"ends": [1]}, r"x\.ends"),
        ({"counts": 1}, r"no key 'x\.counts'; did you mean 'count'\?"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        read_fields(Example(), values, "x.")


@pytest.mark.parametrize("command", COMMANDS)
def test_without_options_a_command_has_its_defaults(command: str) -> None:
    given = given_options(command, options_type(command)())
    assert given == {}
    config = configure(command)
    assert config.command == command and isinstance(config, RunConfig)
    assert config.model.backbone == default_config(command).model.backbone


@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_the_value_of_a_field(command: str) -> None:
    names = [name for name, *_ in flags_of(command)]
    assert len(set(names)) == len(names)
    examples = {"dim": 32, "epochs": 3, "seed": 5, "size": 64, "tokens": "all", "workers": 1}
    given = {name: value for name, value in examples.items() if name in names}
    config = configure(command, **given)
    found = {**vars(config.model), **vars(config.options), **vars(config.augment)}
    found |= vars(config.train)
    assert {name: found[name] for name in given} == given and config.model.img_size == 64


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("fit", {"lr": (-1.0,)}, "--lr must be at least 0, got -1.0"),
        ("fit", {"size": 0}, "--size must be greater than 0, got 0"),
        (
            "fit",
            {"settings": {"epochs": "x"}},
            "--settings epochs must be a valid integer, got 'x'",
        ),
        ("clip", {"crop": 0.0}, "--crop must be greater than 0, got 0.0"),
        ("metric", {"metrix": ("in",)}, "--metrix must be 'input', 'feature' or 'embed', got 'in'"),
        (
            "dino",
            {"options": {"out": 1}},
            "--options out must be at least 2, got 1",
        ),
    ],
)
def test_a_wrong_option_is_named_as_typed(command: str, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        configure(command, **given)


def test_pairs_are_read_as_yaml_reads_them() -> None:
    assert parse_pairs(["a=1e-4", "b-c=[1, 2]", "d=null", "e=x"]) == {
        "a": 1e-4,
        "b_c": [1, 2],
        "d": None,
        "e": "x",
    }
    with pytest.raises(ValueError, match="'clip'"):
        parse_pairs(["clip"])


def test_optional_fields_of_a_report_are_left_out() -> None:
    values: dict[str, Any] = {"pool": "gap", "backbone": "lite0", "epoch": 3, "data": "digest"}
    scores = {"accuracy": 50.0, "images": 4}
    report = FitReport(**values, val=scores, test=None, seconds={}, settings={"lr": 0.1})
    content = json.loads(json.dumps(report.to_json()))
    assert "rates" not in content and content["test"] is None
    assert FitReport(**content) == report

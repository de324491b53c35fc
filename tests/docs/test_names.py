"""`make docs-check` finds names that the pages mention and that do not exist."""

import importlib.util

import pytest

from tests.docs.reading import ROOT

spec = importlib.util.spec_from_file_location("check_names", ROOT / "docs" / "check_names.py")
assert spec is not None and spec.loader is not None
check_names = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check_names)

PAGE = """
Call `cenote.models.last_qkv(model, images)` or cenote.nothing.at_all.

```python
from cenote.models import load, laod
from cenote.losses import (
    Metrix as M,
    metrics,
)
import cenote.pooling
```
"""


def test_names_are_found_in_sentences_and_imports() -> None:
    names = {
        "cenote.models.last_qkv",
        "cenote.nothing.at_all",
        "cenote.models",
        "cenote.models.load",
    }
    assert set(check_names.mentioned(PAGE)) == names | {
        "cenote.models.laod", "cenote.pooling", "cenote.losses", "cenote.losses.Metrix", "cenote.losses.metrics",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "exists"),
    [
        ("cenote.models.last_qkv", True),
        ("cenote.pooling.gap", True),
        ("cenote.pooling.base.Pool", True),
        ("cenote.models.last_qvk", False),
        ("cenote.nothing.at_all", False),
    ],
)
def test_a_name_exists_if_it_can_be_imported(name: str, exists: bool) -> None:
    assert check_names.exists(name) == exists


def test_every_page_mentions_only_what_exists() -> None:
    assert check_names.main() == 0

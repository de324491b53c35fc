"""Functions compiled by numba."""

import pytest

from cenote.compiled import compiled

caching = pytest.importorskip("numba.core.caching", reason="numba is not installed")


def test_a_function_is_compiled_without_a_writable_cache_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(self: object) -> None:
        raise OSError("read-only")

    for name in dir(caching):
        if "Locator" in name:
            monkeypatch.setattr(getattr(caching, name), "ensure_cache_path", refuse, raising=False)

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(3) == 6

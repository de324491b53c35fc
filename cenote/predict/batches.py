"""The loop over batches of images that all inference shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

Output = TypeVar("Output")
Progress = Callable[[int], object]  # receives the number of images since the last call


def predict_batches(
    batches: Iterable[Any],
    forward: Callable[[Any], Output],
    bad: list[str],
    progress: Progress | None = None,
) -> Iterator[tuple[Any, Output]]:
    """Yield each batch that has readable images with the result of `forward(batch)`.

    A batch has `indices`, and `bad` if images may be unreadable: their error messages are
    appended to `bad`. The caller disables gradients.
    """
    for batch in batches:
        count, messages = len(batch.indices), [message for _, message in getattr(batch, "bad", ())]
        bad += messages
        if count:
            yield batch, forward(batch)
        if progress:
            progress(count + len(messages))

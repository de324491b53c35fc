"""Real data sets and weights: not part of the repository, so tests that need them are skipped where they are absent."""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


def shared_data(name: str) -> Path:
    """Return the file or folder `name` of the shared data, e.g. "pets", or skip the test with the reason.

    The shared data is the folder in the environment variable CENOTE_SHARED_DATA, or ../shared/data beside the checkout.
    """
    path = Path(os.environ.get("CENOTE_SHARED_DATA", CHECKOUT.parent / "shared" / "data")) / name
    if not path.exists():
        pytest.skip(
            f"{path} does not exist: set CENOTE_SHARED_DATA to a folder that contains {name}"
        )
    return path

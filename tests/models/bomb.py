"""What a pickle may do to whoever opens it."""

import os
import tempfile
from typing import Any

MARK = os.path.join(tempfile.gettempdir(), "cenote-must-not-exist")


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARK}",)

from typing import Literal

from ..pooling import landscape


def run(style: Literal["text", "markdown", "json"] = "text") -> None:
    """The landscape of pooling methods: Table 1 of SimPool, printed from the code's own declarations.

    Args:
        style: how to print the table.
    """
    print(landscape(style))

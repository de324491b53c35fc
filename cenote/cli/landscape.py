"""`cenote landscape`."""

from typing import Literal

from ..pooling import landscape


def run(style: Literal["text", "markdown", "json"] = "text") -> None:
    """Print the landscape of pooling methods, Table 1 of SimPool, from the declarations in the code.

    Args:
        style: the format of the table.
    """
    print(landscape(style))

"""`cenote landscape`."""

from typing import Literal

from ..pooling import landscape


def run(style: Literal["text", "markdown", "json"] = "text") -> None:
    """Print the landscape of pooling methods [SimPool Table 1] from their declarations.

    Args:
        style: the format of the table.
    """
    print(landscape(style))

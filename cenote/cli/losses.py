"""`cenote losses`."""

from typing import Literal


def run(style: Literal["text", "markdown", "json"] = "text") -> None:
    """Print the losses of metric learning, five small functions each, from their declarations.

    Args:
        style: the format of the table.
    """
    from ..losses.catalogue import loss_table

    print(loss_table(style))

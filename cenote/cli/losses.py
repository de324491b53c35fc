from typing import Literal


def run(style: Literal["text", "markdown", "json"] = "text") -> None:
    """The losses of metric learning: five small functions each, printed from the code's own declarations.

    Args:
        style: how to print the table.
    """
    from ..losses.catalogue import loss_table

    print(loss_table(style))

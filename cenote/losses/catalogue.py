"""Losses of metric learning by name, and the table that `cenote losses` prints."""

from __future__ import annotations

import json
from typing import Any

from ..options import check_names, check_number
from .forms import FORMS, Form, form_named
from .metric import GenericLoss, MetricLoss, generic_options
from .pml import PmlLoss

HEADINGS = {
    "name": "Loss",
    "anchor": "Anchor",
    "other": "Pos/neg",
    "tau": "τ(x)",
    "sigma_pos": "σ⁺(x)",
    "sigma_neg": "σ⁻(x)",
    "rho_pos": "ρ⁺(s)",
    "rho_neg": "ρ⁻(s)",
    "settings": "Settings",
}
LEGEND = """loss(a) = τ( σ⁺(Σ y ρ⁺(s)) + σ⁻(Σ (1-y) ρ⁻(s)) ), the mean over anchors a.
s: cosine of a and an example or proxy; y: its label, 1 for the class of a, 0 for another, between if mixed;
s₊: s of the positives; [x]₊: max(x, 0); β, γ, m, m₋, T: beta, gamma, m, m_neg (-m if not given), temperature.
soft-triple: s is a mean over a class's proxies, spread by gamma.
epshn: of each anchor the nearest positive, and the nearest negative beyond it.
After Table 2.1 of the dissertation, which prints m₋ = m for proxy-anchor and no s₊ for nca and proxy-nca++:
these are as first published (options m_neg, softmax). Any loss of pytorch-metric-learning: pml/NAME."""


def list_metric_losses() -> list[str]:
    """The losses that take soft labels, in the table's order; `pml/NAME` comes beside them."""
    return list(FORMS)


def create_metric_loss(name: str, classes: int, dim: int, **options: Any) -> MetricLoss:
    """A loss by name, for embeddings of `dim` dimensions: `create_metric_loss("multi-similarity",
    100, 512, m=0.5)`.

    `pml/NAME` is any loss of pytorch-metric-learning with its own options.
    """
    if str(name).startswith("pml/"):
        return PmlLoss(name, classes, dim, **options)
    defaults = loss_options(name)
    check_names(name, options, defaults)
    if name == "proxy-anchor" and "m" in options:
        check_number(f"m of '{name}'", options["m"])
        defaults["m_neg"] = -options["m"]  # its authors have one margin
    form, loss_arguments = generic_options(name, FORMS[name], {**defaults, **options})
    return GenericLoss(name, form, classes, dim, **loss_arguments)


def loss_options(name: str) -> dict[str, float]:
    """The options of a loss with their defaults."""
    form = form_named(name)
    proxies: dict[str, float] = {"proxies": 10} if form.other == "proxies" else {}
    if name in ("nca", "proxy-nca", "proxy-nca++"):
        proxies["softmax"] = form.together
    return {**form.settings, **proxies}


def loss_rows() -> list[dict[str, str]]:
    """One dict per loss, column -> text."""
    return [_row(name, form) for name, form in FORMS.items()]


def _row(name: str, form: Form) -> dict[str, str]:
    functions = ("tau", "sigma_pos", "sigma_neg", "rho_pos", "rho_neg")
    settings = ", ".join(f"{key}={value}" for key, value in _symbols(loss_options(name)).items())
    return {
        "name": name,
        "anchor": form.anchor,
        "other": form.other,
        **{function: getattr(form, function).text for function in functions},
        "settings": settings,
        "source": form.source,
    }


def _symbols(options: dict[str, float]) -> dict[str, str]:
    return {
        key: str(value).lower() if isinstance(value, bool) else f"{value:g}"
        for key, value in options.items()
    }


def loss_table(style: str = "text") -> str:
    """The ten losses as "text", "markdown" or "json"."""
    rows = loss_rows()
    if style == "json":
        return json.dumps(rows, ensure_ascii=False, indent=2)
    table = [list(HEADINGS.values())] + [[row[key] for key in HEADINGS] for row in rows]
    if style == "markdown":
        lines = ["| " + " | ".join(line) + " |" for line in table]
        return "\n".join([lines[0], "|---" * len(HEADINGS) + "|", *lines[1:], "", LEGEND])
    if style != "text":
        raise ValueError(f"no style '{style}': text, markdown or json")
    widths = [max(len(line[i]) for line in table) for i in range(len(HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    ]
    rule = "-" * max(map(len, lines))
    return "\n".join([lines[0], rule, *lines[1:], rule, LEGEND])

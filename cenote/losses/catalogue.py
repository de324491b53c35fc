"""Losses of metric learning by name, and the table that `cenote losses` prints."""

from __future__ import annotations

import json
from dataclasses import replace
from inspect import signature
from typing import Any

from ..options import check_choice, check_known, check_names, check_number
from .forms import EXP, EXP_TOO, FORMS, form_named
from .libc import LIBC
from .metric import GenericLoss, MetricLoss
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
these are as first published (options m_neg, softmax). Any loss of pytorch-metric-learning: pml/NAME.
libc: cross-entropy after messages between the images of a batch (LIBC)."""


def list_metric_losses() -> list[str]:
    """Return the losses that take soft labels, in the table's order, without `pml/NAME`."""
    return list(FORMS)


def create_metric_loss(name: str, classes: int, dim: int, **options: Any) -> MetricLoss:
    """Create a loss by name: `create_metric_loss("multi-similarity", 100, 512, m=0.5)`.

    `dim` is that of the embeddings. `pml/NAME` is any loss of pytorch-metric-learning with its own
    options, `libc` has messages between the images of a batch.
    """
    if str(name).startswith("pml/"):
        return PmlLoss(name, classes, dim, **options)
    if name == "libc":
        check_names(name, options, [*signature(LIBC).parameters][2:])
        return LIBC(classes, dim, **options)
    check_known("metric loss", name, [*FORMS, "libc", "pml/NAME"])
    form, settings = form_named(name), loss_options(name)
    check_names(name, options, settings)
    if name == "proxy-anchor" and "m" in options:
        check_number(f"m of '{name}'", options["m"])
        settings["m_neg"] = -options["m"]  # its authors have one margin
    settings.update(options)
    if "softmax" in settings:
        together = settings.pop("softmax")
        check_choice(f"softmax of '{name}'", together, (False, True))
        form = replace(form, together=together, rho_neg={False: EXP, True: EXP_TOO}[together])
    return GenericLoss(name, form, classes, dim, **settings)


def loss_options(name: str) -> dict[str, Any]:
    """Return the options of a loss with their defaults."""
    form = form_named(name)
    options: dict[str, Any] = dict(form.settings)
    if form.other == "proxies":
        options["proxies"] = 10
    if name in ("nca", "proxy-nca", "proxy-nca++"):
        options["softmax"] = form.together
    return options


def loss_rows() -> list[dict[str, str]]:
    """Return one row per loss, column -> text."""
    parts = ("tau", "sigma_pos", "sigma_neg", "rho_pos", "rho_neg")
    return [
        {
            "name": name,
            "anchor": form.anchor,
            "other": form.other,
            **{part: getattr(form, part).text for part in parts},
            "settings": ", ".join(f"{k}={_text(v)}" for k, v in loss_options(name).items()),
            "source": form.source,
        }
        for name, form in FORMS.items()
    ]


def _text(value: float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}"


def loss_table(style: str = "text") -> str:
    """Return the ten losses as "text", "markdown" or "json"."""
    check_choice("style", style, ("text", "markdown", "json"))
    rows = loss_rows()
    if style == "json":
        return json.dumps(rows, ensure_ascii=False, indent=2)
    table = [list(HEADINGS.values())] + [[row[key] for key in HEADINGS] for row in rows]
    if style == "markdown":
        lines = ["| " + " | ".join(line) + " |" for line in table]
        return "\n".join([lines[0], "|---" * len(HEADINGS) + "|", *lines[1:], "", LEGEND])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
    rule = "-" * max(map(len, lines))
    return "\n".join([lines[0], rule, *lines[1:], rule, LEGEND])

"""Pictures: maps over photographs, masks, boxes, contact sheets."""

from .maps import draw_box, highlight, overlay, stretch
from .sheet import Entry, contact_sheet

__all__ = ["Entry", "contact_sheet", "draw_box", "highlight", "overlay", "stretch"]

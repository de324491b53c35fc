"""Pictures: maps over photographs, masks, boxes, contact sheets."""

from ..data.images import stretch
from .maps import draw_box, highlight, overlay
from .sheet import SheetEntry, contact_sheet

__all__ = ["SheetEntry", "contact_sheet", "draw_box", "highlight", "overlay", "stretch"]

"""Every table and figure of the five papers as a command: declarations, cells, results, verdicts."""

from .papers import PAPERS, Claim, Column, Item, Paper, find_item, load_paper, papers_page
from .result import Verdict, judge, measure, write_table
from .run import Cell, Job, list_jobs, make_cells, run_cells

__all__ = [
    "PAPERS",
    "Cell",
    "Claim",
    "Column",
    "Item",
    "Job",
    "Paper",
    "Verdict",
    "find_item",
    "judge",
    "list_jobs",
    "load_paper",
    "make_cells",
    "measure",
    "papers_page",
    "run_cells",
    "write_table",
]

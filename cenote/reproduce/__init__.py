"""Every table and figure of the five papers as a command: declarations, cells, results, verdicts."""

from .papers import PAPERS, Claim, Column, Item, Paper, find_item, load_paper, papers_page
from .result import TableResult, Verdict, judge, measure, read_result
from .run import Cell, Job, list_jobs, make_cells, run_cells

__all__ = [
    "PAPERS",
    "Cell",
    "Claim",
    "Column",
    "Item",
    "Job",
    "Paper",
    "TableResult",
    "Verdict",
    "find_item",
    "judge",
    "list_jobs",
    "load_paper",
    "make_cells",
    "measure",
    "papers_page",
    "read_result",
    "run_cells",
]

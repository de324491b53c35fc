"""The page: `cenote serve`. One light server process, and one worker process that holds models and index."""

from importlib.util import find_spec

from ..extras import require

for _package in ("fastapi", "uvicorn", "python_multipart"):
    if find_spec(_package) is None:  # looked for, not imported: the worker needs none of them
        require(_package, extra="web")

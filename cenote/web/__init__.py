"""The web page of `cenote serve`: a light HTTP server and one worker process with the models.

The server (server, state, jobs, and the endpoints in about, look, photos and search) never imports
torch; the worker (service, models) does.
"""

from importlib.util import find_spec

from ..extras import require

for _package in ("fastapi", "uvicorn", "python_multipart", "cachetools"):
    if find_spec(_package) is None:  # checked, not imported: importing this package stays cheap
        require(_package, extra="web")

"""The server conforms to its OpenAPI description, for valid and for invalid requests."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from .conftest import Server

schemathesis: Any = pytest.importorskip("schemathesis")
checks: Any = pytest.importorskip("schemathesis.specs.openapi.checks")

FEW = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)  # fmt: skip
# A valid request may be meaningless: an empty search, a word with a weight of 0. That is a 400.
LEFT_OUT = [checks.positive_data_acceptance]
ADDRESSES = {
    "GET /health", "GET /api/about", "GET /api/tournament", "POST /api/photos", "GET /api/photos/{photo}",
    "GET /api/entries/{n}", "POST /api/entries/{n}", "GET /api/look", "GET /api/map", "GET /api/search",
    "GET /api/search.csv", "GET /api/searches", "PUT /api/searches/{name}", "DELETE /api/searches/{name}",
}  # fmt: skip


def test_the_server_conforms_to_its_description(server: Server) -> None:
    """Status, content type, headers and body of every response; never a 500."""
    document = schemathesis.openapi.from_url(f"{server.address}/api/openapi.json")
    with server.client() as client:
        known = {"photo": client.get("/api/about").json()["examples"][0]["photo"], "model": "run"}
    statuses = dict[str, set[int]]()
    for result in document.get_all_operations():
        operation = result.ok()
        seen = statuses.setdefault(operation.label, set())
        for mode in schemathesis.GenerationMode:
            if mode.is_positive or operation.query or operation.path_parameters or operation.body:
                _ask(operation, mode, known, seen)
    assert set(statuses) == ADDRESSES
    assert (
        all(seen & {200, 201, 404, 415} for seen in statuses.values())
        and 200 in statuses["GET /api/look"]
    )
    assert statuses["GET /api/search"] >= {200, 400, 422} and not any(
        500 in seen for seen in statuses.values()
    )


def _ask(operation: Any, mode: Any, known: dict[str, str], seen: set[int]) -> None:
    @FEW
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Any) -> None:
        if mode.is_positive:  # made-up photographs and models would end in 404
            for part in (case.query, case.path_parameters):
                part.update({name: value for name, value in known.items() if name in part})
        response = case.call()
        seen.add(response.status_code)
        case.validate_response(response, excluded_checks=LEFT_OUT)

    ask()

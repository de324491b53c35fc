"""Only requests for this server are answered, only its own pages may post, and every response has strict headers."""

import asyncio
import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from cenote.cli import main
from cenote.web.server import CLIENT_REQUESTS, SecurityMiddleware, create_app, read_static

from .stub_jobs import EXAMPLE, StubJobs, get, report_in, state_of

TRAVERSALS = [
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "....//etc/passwd",
    "..\\..\\etc\\passwd", "file:///etc/passwd", "index.html%00.js", "app.py", "../app.py", "C:\\boot.ini", "\u2025/x",
]  # fmt: skip


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8000", "8.8.8.8",
                                  "", "[", "10.0.0.5:8000", "localhost@evil.example", "[::1"])  # fmt: skip
def test_other_names_are_refused(host: str) -> None:
    response = get(state_of(), "/api/about", headers={"host": host})
    assert response.status_code == 400 and response.json()["detail"]
    assert response.headers["content-security-policy"].startswith("default-src 'none'")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8000", "127.0.0.1:8000", "127.0.0.2", "[::1]:8000"]
)
def test_loopback_is_served(host: str) -> None:
    assert get(state_of(), "/api/about", headers={"host": host}).status_code == 200


def test_names_and_addresses_that_were_given() -> None:
    assert (
        get(
            state_of(), "/health", names=("photos.lan",), headers={"host": "Photos.LAN:8000"}
        ).status_code
        == 200
    )
    assert (
        get(state_of(), "/health", host="10.0.0.5", headers={"host": "10.0.0.5:8000"}).status_code
        == 200
    )
    # An address is no name that somebody could point here, so with every network all of them are served.
    assert (
        get(state_of(), "/health", host="0.0.0.0", headers={"host": "10.0.0.7"}).status_code == 200
    )
    assert (
        get(state_of(), "/health", host="0.0.0.0", headers={"host": "evil.example"}).status_code
        == 400
    )


@pytest.mark.parametrize(("origin", "status"), [
    ("http://evil.example", 403), ("null", 403), ("http://[", 403), ("http://127.0.0.1:9999", 403),
    ("https://localhost:8000", 403),
    ("http://127.0.0.1:8000", 201), (None, 201),
])  # fmt: skip
def test_only_own_pages_post(origin: str | None, status: int) -> None:
    headers = {"host": "127.0.0.1:8000"} | ({} if origin is None else {"origin": origin})
    jobs = StubJobs()
    response = get(
        state_of(jobs),
        "/api/photos",
        method="POST",
        headers=headers,
        files={"file": ("a.jpg", b"abc")},
    )
    assert response.status_code == status
    assert bool(jobs.submitted) is (status == 201), "what is refused is not read either"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_other_sites_may_link_here_and_no_more(site: str) -> None:
    """An image or a script of theirs would hold the worker, whoever reads the answer."""
    jobs = StubJobs()
    for mode, path in (("no-cors", "/api/search?text=a"), ("cors", "/health"), ("navigate", "/api/search?text=a"),
                       ("no-cors", "/report"), ("no-cors", "/")):  # fmt: skip
        response = get(
            state_of(jobs), path, headers={"sec-fetch-site": site, "sec-fetch-mode": mode}
        )
        assert response.status_code == 403 and response.json()["detail"], path
    assert not jobs.submitted
    for path in ("/", "/look?photo=1", "/search", "/tournament", "/api"):
        response = get(
            state_of(), path, headers={"sec-fetch-site": site, "sec-fetch-mode": "navigate"}
        )
        assert response.status_code == 200, path
    for own in ("same-origin", "none"):
        assert (
            get(state_of(), "/api/search?text=a", headers={"sec-fetch-site": own}).status_code
            == 200
        )


def test_an_unforeseen_error_is_told_as_every_other() -> None:
    def fail(question: object) -> None:
        raise KeyError("secret")

    response = get(state_of(StubJobs(fail)), "/api/search?text=a")
    assert (
        response.status_code == 500
        and "KeyError" in response.json()["detail"]
        and "secret" not in response.text
    )
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    assert response.headers["x-content-type-options"] == "nosniff"


PATHS = [
    "/", "/look?photo=1", "/compare", "/search", "/tournament", "/api/about", "/health", "/nowhere",
    f"/api/photos/{EXAMPLE}", "/api/openapi.json", "/static/nothing.js",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_headers_of_every_answer(path: str) -> None:
    headers = get(state_of(), path).headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert (
        policy["default-src"] == "'none'"
        and policy["script-src"] == policy["style-src"] == "'self'"
    )
    assert policy["connect-src"] == "'self'" and policy["img-src"] == "'self' blob: data:"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert (
        headers["x-content-type-options"] == "nosniff"
        and headers["referrer-policy"] == "no-referrer"
    )
    assert (
        headers["cross-origin-opener-policy"]
        == headers["cross-origin-resource-policy"]
        == "same-origin"
    )
    assert "access-control-allow-origin" not in headers and "server" not in headers


def test_a_report_may_run_its_own_script_and_ask_nobody(tmp_path: Path) -> None:
    script = "\n  document.title = 'é'\n"
    page = f"<title>r</title><script type=module>{script}</script><p>x</p><SCRIPT>1</SCRIPT>"
    response = get(state_of(report=report_in(tmp_path, page)), "/report")
    assert response.text == page
    policy = response.headers["content-security-policy"]
    for text in (script, "1"):
        assert f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" in policy
    allowed = re.search("script-src ([^;]*);", policy)
    assert (
        allowed
        and "unsafe" not in allowed[1]
        and "self" not in allowed[1]
        and "connect-src" not in policy
    )
    assert policy.endswith("; sandbox allow-scripts"), "it is nobody's page, this server's neither"
    assert response.headers["cross-origin-opener-policy"] == "unsafe-none"
    assert (
        "frame-ancestors 'self'" in policy and response.headers["x-frame-options"] == "SAMEORIGIN"
    )
    assert get(state_of(report=tmp_path / "later.html"), "/report").status_code == 404


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_of_a_request_reaches_the_file_system(path: str) -> None:
    state = state_of()
    for address in (f"/static/{path}", f"/{path}", f"/api/photos/{path}", f"/api/entries/{path}"):
        response = get(state, address)
        assert response.status_code in (404, 422), address
        assert (
            response.headers["content-type"] == "application/json" and "root:" not in response.text
        )
    for name, address in (
        ("photo", "/api/look?model=m&"),
        ("photo", "/api/search?"),
        ("entry", "/api/search?"),
    ):
        response = get(state, address, params={name: path, "model": "m"})
        assert response.status_code == 422 and response.json()["detail"].startswith(name)


def test_the_page_s_files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state, files = state_of(), read_static()
    get(state, "/")
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("a request read a file"))
    for name, content in files.items():
        assert get(state, f"/static/{name}").content == content


@pytest.mark.parametrize(("authorization", "status"), [
    (None, 401), ("Bearer wrong", 401), ("Basic !", 401), ("Digest " + "t" * 16, 401), ("Bearer " + "t" * 16, 200),
    ("Basic " + b64encode(b"me:" + b"t" * 16).decode(), 200), ("Bearer \u00e9", 401),
])  # fmt: skip
@pytest.mark.parametrize("path", ["/", "/health", "/api/about", "/static/app.js", "/nothing"])
def test_a_token_is_required(path: str, authorization: str | None, status: int) -> None:
    app = create_app(state_of(), token="t" * 16)
    headers = {} if authorization is None else {"authorization": authorization.encode()}
    transport = httpx.ASGITransport(app)

    async def request() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.get(path, headers=headers)

    response = asyncio.run(request())
    assert (response.status_code == 401) == (status == 401)
    assert response.headers["x-frame-options"] == "DENY"
    assert ("www-authenticate" in response.headers) == (status == 401)


@pytest.mark.parametrize(("client", "refused"), [("10.0.0.9", 1), ("127.0.0.1", 0)])
def test_a_client_of_another_machine_has_a_limit(client: str, refused: int) -> None:
    async def run() -> list[int]:
        running, statuses = asyncio.Event(), list[int]()

        async def slow(scope: Any, receive: Any, send: Any) -> None:
            await running.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        app = SecurityMiddleware(slow, "127.0.0.1")
        scope = {"type": "http", "method": "GET", "path": "/", "client": (client, 1)}
        scope["headers"] = [(b"host", b"127.0.0.1")]
        tasks = [
            asyncio.create_task(app(scope, None, send))  # type: ignore[arg-type]
            for _ in range(CLIENT_REQUESTS + 1)
        ]
        await asyncio.sleep(0)
        running.set()
        await asyncio.gather(*tasks)
        assert not app.requests
        return statuses

    assert asyncio.run(run()).count(503) == refused


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--host", "0.0.0.0"], "--token"),
        (["--host", "::"], "--no-auth"),
        (["--token", "short"], "16"),
    ],
)
def test_other_machines_need_a_token(
    options: list[str], named: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *options]) == 2
    assert named in capfd.readouterr().err

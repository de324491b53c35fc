"""What the server does by itself: errors are sentences, uploads are limited, clients may leave."""

import asyncio
import json
from collections.abc import AsyncIterator
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from PIL import Image
from starlette.exceptions import HTTPException

from cenote.web import photos, server
from cenote.web.about import ContentsRequest
from cenote.web.jobs import busy
from cenote.web.look import LookRequest
from cenote.web.photos import DecodeRequest, shrink_jpeg
from cenote.web.schemas import Contents, ModelInfo, Photo
from cenote.web.search import ImageSearchRequest, SavedSearchesResponse
from cenote.web.server import create_app
from cenote.web.state import Limits, PhotoStore

from .stub_jobs import EXAMPLE, StubJobs, call, get, jpeg, listening, state_of, until


def sentence(response: httpx.Response) -> str:
    body = response.json()
    assert set(body) == {"detail"} and isinstance(body["detail"], str)
    assert "\n" not in body["detail"]
    return str(body["detail"])


@pytest.mark.parametrize(("path", "status", "name"), [
    ("/api/look", 422, "photo: "),
    ("/api/look?photo=xyz&model=m", 422, "photo: "),
    (f"/api/look?photo={EXAMPLE}&model=m&threshold=1", 422, "threshold: "),
    (f"/api/look?photo={EXAMPLE}&model=m&threshold=nan", 422, "threshold"),
    (f"/api/look?photo={EXAMPLE}&model=m&map=magic", 422, "map: "),
    (f"/api/look?photo={'b' * 32}&model=m", 404, ""),
    (f"/api/search?photo={EXAMPLE}&entry=3", 400, "entry"),
    ("/api/search?top=0", 422, "top"), ("/api/search?weight=2", 422, "weight"), ("/api/search?text=", 422, "text"),
    ("/api/search?text=a&region=0.5,0.5&region=0.5", 422, "two numbers from 0 to 1"),
    ("/api/search?text=a&region=0,1.5", 422, "two numbers from 0 to 1"),
    (f"/api/search?text=a{'&region=0,0' * 65}", 422, "region: tuple should have at most 64 items"),
    (f"/api/photos/{EXAMPLE}?side=5", 422, "side"), (f"/api/photos/{'c' * 32}", 404, ""),
    ("/api/entries/12345678901234567890", 422, "n: "), ("/api/tournament", 404, "tournament"),
    ("/report", 404, "report"), ("/nowhere", 404, ""),
])  # fmt: skip
def test_failures_are_sentences(path: str, status: int, name: str) -> None:
    response = get(state_of(), path)
    assert response.status_code == status and name in sentence(response)


def test_other_methods_are_refused() -> None:
    response = get(state_of(), "/api/about", method="DELETE")
    assert response.status_code == 405 and sentence(response)
    assert response.headers["allow"] == "GET"


def test_errors_of_the_worker() -> None:
    def answer(request: Any) -> Any:
        if isinstance(request, ImageSearchRequest):
            raise busy("too many", 7)
        raise HTTPException(410, "it is gone")

    response = get(state_of(StubJobs(answer)), "/api/search?text=dog")
    assert (response.status_code, sentence(response)) == (503, "too many")
    assert response.headers["retry-after"] == "7"
    assert get(state_of(StubJobs(answer)), "/api/entries/7").status_code == 410


def test_parameters_reach_the_worker() -> None:
    jobs = StubJobs()
    state = state_of(jobs)
    response = get(state, f"/api/look?photo={EXAMPLE}&model=a%20b&map=cam&threshold=0.25")
    assert response.json() == {"answered": True}
    expected = LookRequest(photo=EXAMPLE, model="a b", map="cam", threshold=0.25)
    assert jobs.submitted == {expected: state.photos[EXAMPLE].content}
    get(
        state,
        "/api/search?entry=9223372036854775807&text=dog%5E2&text=red&not=cat&weight=0.5&top=3"
        "&class=c&domain=d&like=7&like=8&unlike=9&region=0,0.25&region=1%2C0&region=0.5,1.0",
    )
    search = list(jobs.submitted)[1]
    assert search.model_dump(by_alias=True) == {
        "photo": None,
        "entry": 2**63 - 1,
        "text": ("dog^2", "red"),
        "not": ("cat",),
        "weight": 0.5,
        "method": "auto",
        "top": 3,
        "class": ("c",),
        "domain": ("d",),
        "like": (7, 8),
        "unlike": (9,),
        "region": ((0, 0.25), (1, 0), (0.5, 1)),
    }


@pytest.mark.parametrize("name", ["cats", "cats/dogs", "/a b/", "100%"])
def test_names_of_saved_searches(name: str) -> None:
    """As the page encodes them."""
    jobs = StubJobs(lambda request: SavedSearchesResponse(searches=[], can_save=True))
    state = state_of(jobs)
    address = f"/api/searches/{quote(name, safe='')}"
    for method, parameters in (("PUT", "?text=dog"), ("DELETE", "")):
        assert get(state, address + parameters, method=method).status_code == 200
    saved, deleted = jobs.submitted
    assert (saved.save, saved.query.text) == (name, ("dog",)) and deleted.delete == name


def test_answers_of_replaced_models_leave_the_cache(tmp_path: Path) -> None:
    """While a tournament runs, its models are listed again with every /api/about."""
    (tmp_path / "plan.json").write_text(json.dumps({"contenders": ["gap"], "kind": "pools"}))
    fields = {
        "pool": "gap",
        "backbone": "b",
        "classes": 2,
        "maps": [],
        "accuracy": None,
        "evaluated_on": "",
    }
    model = ModelInfo(id="gap", name="gap", recommended=False, **fields)
    models = list[ModelInfo]()
    jobs = StubJobs(lambda request: Contents(models=list(models), index=None))
    state = state_of(jobs, tournaments=[tmp_path])
    request = LookRequest(photo=EXAMPLE, model="m")
    for trained, cached in ((False, True), (True, False), (True, True)):
        models[:] = [model] * trained
        jobs.cache[request] = b"answer"
        response = get(state, "/api/about")
        assert len(response.json()["models"]) == trained
        assert (request in jobs.cache) is cached
    assert ContentsRequest() in jobs.submitted


def test_an_upload_has_the_address_of_its_contents() -> None:
    jobs = StubJobs()
    state = state_of(jobs)
    digest = blake2b(b"contents", digest_size=16).hexdigest()
    for name in ("a.jpg", "../../etc/passwd.png"):  # the second time it is stored already
        response = get(state, "/api/photos", method="POST", files={"file": (name, b"contents")})
        assert response.status_code == 201
        assert response.json() == {"photo": digest, "width": 40, "height": 30}
    assert [type(request) for request in jobs.submitted] == [DecodeRequest]
    assert state.photos[digest].content == b"contents", "models get the uploaded file"
    assert get(state, f"/api/photos/{digest}").content == jpeg(), "and clients do not"
    picture = get(state, f"/api/photos/{digest}?side=16")
    assert picture.headers["content-type"] == "image/jpeg"
    assert "immutable" in picture.headers["cache-control"]


def test_names_of_uploads_are_only_names() -> None:
    jobs = StubJobs()
    files = {"file": ("..\\up/../xy.jpg", b"1")}
    get(state_of(jobs), "/api/photos", method="POST", files=files)
    (request,) = jobs.submitted
    assert isinstance(request, DecodeRequest) and request.name == "xy.jpg"


@pytest.mark.parametrize(("request_", "status"), [
    ({"files": {"file": ("a.jpg", b"x" * 2001)}}, 413),
    ({"files": {"file": ("a.jpg", b"x" * 200_000)}}, 413),
    ({"files": {"file": ("a.jpg", b"")}}, 400),
    ({"files": {"other": ("a.jpg", b"x")}}, 400),
    ({"data": {"file": "text"}}, 415),
    ({"content": b"abc"}, 415),
    ({"content": b"abc", "headers": {"content-type": "multipart/form-data"}}, 400),
    ({"content": b"abc", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400),
    ({"content": b"--x\r\nnonsense", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400),
    ({"files": [("file", ("a", b"1")), ("file", ("b", b"2"))]}, 400),
])  # fmt: skip
def test_uploads_that_are_refused(request_: dict[str, Any], status: int) -> None:
    jobs = StubJobs()
    response = get(state_of(jobs, Limits(bytes=2000)), "/api/photos", method="POST", **request_)
    assert response.status_code == status and sentence(response) and not jobs.submitted


def test_an_upload_is_cut_off_while_it_comes() -> None:
    """Without a length in the header: what is counted is what came."""
    sent = 0

    async def forever() -> AsyncIterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        while sent < 100_000_000:
            sent += 10_000
            yield b"x" * 10_000

    response = get(
        state_of(limits=Limits(bytes=20_000)), "/api/photos", method="POST", content=forever(),
        headers={"content-type": "multipart/form-data; boundary=x"},
    )  # fmt: skip
    assert response.status_code == 413 and "0.02 MB" in sentence(response) and sent < 200_000


def test_a_slow_upload_ends_and_many_at_once_are_asked_to_come_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(photos, "UPLOAD_SECONDS", 0.2)
    state = state_of()

    async def slow() -> AsyncIterator[bytes]:
        yield b"--x\r\n"
        await asyncio.sleep(30)

    async def test(client: httpx.AsyncClient) -> list[httpx.Response]:
        headers = {"content-type": "multipart/form-data; boundary=x"}
        uploads = [
            client.post("/api/photos", content=slow(), headers=headers)
            for _ in range(photos.MAX_UPLOADS + 1)
        ]
        return await asyncio.gather(*uploads)

    responses = call(state, test)
    assert sorted(response.status_code for response in responses) == [408] * photos.MAX_UPLOADS + [
        503
    ]
    assert state.uploads == 0
    refused = next(response for response in responses if response.status_code == 503)
    assert refused.headers["retry-after"] == "1"


def test_a_client_that_leaves_takes_its_question_with_it() -> None:
    """As uvicorn tells it: http.disconnect while the answer is awaited."""
    cancelled, sent = asyncio.Event(), list[Any]()

    async def wait(question: Any) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def main() -> None:
        messages = iter([{"type": "http.request", "body": b""}, {"type": "http.disconnect"}])
        scope = {
            "type": "http", "method": "GET", "path": "/api/search", "raw_path": b"/api/search", "root_path": "",
            "query_string": b"text=dog", "headers": [(b"host", b"localhost")], "http_version": "1.1",
            "scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000),
        }  # fmt: skip

        async def receive() -> Any:
            return next(messages)

        async def send(message: Any) -> None:
            sent.append(message)

        await asyncio.wait_for(create_app(state_of(StubJobs(wait)))(scope, receive, send), 5)
        assert cancelled.is_set()

    asyncio.run(main())


def test_an_upload_that_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    """Over a real socket, and nothing is written to the terminal."""
    state = state_of()

    async def main() -> None:
        async with listening(state) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(
                b"POST /api/photos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n"
                b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n"
            )
            await until(lambda: state.uploads == 1)
            writer.close()
            await until(lambda: state.uploads == 0)

    asyncio.run(main())
    assert not caplog.records


def test_headers_that_do_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that says nothing, or a byte at a time, is closed; one that asks is not."""
    monkeypatch.setattr(server, "HEADER_SECONDS", 1.0)
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

    async def main() -> None:
        async with listening(state_of()) as port:
            silent, slow, good = [
                await asyncio.open_connection("127.0.0.1", port) for _ in range(3)
            ]
            good[1].write(request)
            assert b"200 OK" in await good[0].readuntil(b"\r\n\r\n")
            good[1].write(request[:20])  # its second request is slow
            slow[1].write(request[:20])
            for reader, writer in (silent, slow, good):
                await asyncio.wait_for(reader.read(), 20)  # to the end
                writer.close()

    asyncio.run(main())


def test_connections_of_one_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CLIENT_CONNECTIONS", 2)
    monkeypatch.setattr(server, "is_loopback", lambda address: False)

    async def main() -> None:
        async with listening(state_of()) as port:
            first, second, third = [
                await asyncio.open_connection("127.0.0.1", port) for _ in range(3)
            ]
            assert await asyncio.wait_for(third[0].read(), 20) == b""  # closed
            for reader, writer in (first, second):
                writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await reader.readuntil(b"\r\n\r\n")
                writer.close()
            third[1].close()
            await until(lambda: not server.HeaderTimeoutProtocol.clients)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"), ("2001:db8::1:2:3:4", "2001:db8::"), ("::1", "::1"),
        ("::ffff:10.1.2.3", "10.1.2.3"), ("", ""), ("fe80::1%eth0", "fe80::"),
    ],
)  # fmt: skip
def test_the_addresses_of_one_client(address: str, network: str) -> None:
    assert server.network_of(address) == network


def test_filters_have_an_end() -> None:
    long = [("class", "x" * 500)] * 9
    response = get(state_of(), "/api/search", params=[("text", "a"), *long])
    assert response.status_code == 400 and sentence(response)
    assert get(state_of(), "/api/search", params=[("text", "a"), *long[:8]]).status_code == 200


def test_photographs_make_room_and_examples_stay() -> None:
    store = PhotoStore({"e": Photo("e", b"x" * 900, 1, 1, b"")}, max_bytes=1000)
    for i in range(5):
        store[str(i)] = Photo(str(i), b"x" * 400, 1, 1, b"")
        _ = store["0"]  # the one that is used
    assert set(store) == {"4", "0"} and store.currsize == 800 and store["e"].digest == "e"
    store["0"] = Photo("0", b"y" * 300, 1, 1, b"z" * 100)
    assert store.currsize == 800


def test_the_largest_upload_fits_into_the_store() -> None:
    state = state_of(limits=Limits(bytes=1 << 30))
    assert state.photos.maxsize >= 1 << 30


def test_a_smaller_picture() -> None:
    assert shrink_jpeg(jpeg(), 1000) == jpeg()
    with Image.open(BytesIO(shrink_jpeg(jpeg(), 20))) as image:
        assert image.size == (20, 15) and not image.getexif()

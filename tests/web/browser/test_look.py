"""Look in a real browser: the first view, uploads, the overlay, the patches, the URL."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.web.browser.actions import BROWSER, at_rest, expect, paste, pixels, slide

pytestmark = BROWSER


def test_something_is_seen_at_once(page: Any, keep: Any) -> None:
    page.goto("/")
    at_rest(page)
    assert page.locator(".classes li").count() == 5
    shares = [
        float(text.rstrip("%")) for text in page.locator(".classes .number").all_inner_texts()
    ]
    assert shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100.2
    assert page.locator(".tile[aria-pressed=true]").count() == 1
    page.locator(".beside").scroll_into_view_if_needed()
    many = page.get_by_label("Model", exact=True).locator("option").count()
    expect(page.locator(".beside .status")).to_have_text(
        re.compile(rf"^\D+ {many}\b")
    )  # before: "1 of 5 ..."
    page.evaluate("scrollTo(0, 0)")
    keep("look")


def test_the_object_map_is_the_default_and_the_others_are_a_choice(page: Any) -> None:
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    page.goto("/look?model=simpool+(gamma+1.25)")
    at_rest(page)
    said = page.locator("figcaption .status")
    expect(said).to_have_text(re.compile("object map of what \\d+ images have in common"))
    page.get_by_label("Map", exact=True).select_option(label="pool attention")
    expect(said).to_have_text(re.compile("pool attention map"))
    page.locator(".beside").scroll_into_view_if_needed()
    expect(page.locator(".beside .status")).to_have_text(re.compile(r"^\D+ \d+ \D+$"))
    cards = {re.search(r"model=([^&]*)&map=(\w+)$", url) for url in urls if "threshold" not in url}
    kinds = {match[1]: match[2] for match in cards if match}
    assert kinds["run"] == "pool" and kinds["gap"] == "cam"
    page.locator(".card", has_text="gap").click()
    expect(page).to_have_url(re.compile("model=gap&map=cam"))


def test_the_overlay_follows_its_controls(page: Any) -> None:
    page.goto("/look")
    at_rest(page)
    before = pixels(page)
    slide(page, "Opacity", 0.1)
    fainter = pixels(page)
    page.get_by_text("None", exact=True).click()
    without = pixels(page)
    page.get_by_label("Box", exact=True).uncheck()
    page.get_by_label("Outline", exact=True).uncheck()
    bare = pixels(page)
    assert len({before, fainter, without, bare}) == 4


def test_the_threshold_is_followed_at_once_and_then_by_the_server(page: Any) -> None:
    page.goto("/look?model=simpool+(gamma+1.25)")
    at_rest(page)
    before, urls = pixels(page), []
    page.on("request", lambda request: urls.append(request.url))
    slide(page, "Threshold", 0.8, let_go=False)
    assert pixels(page) != before
    # The cards of the other models may load meanwhile, but no request carries the threshold.
    assert not [url for url in urls if "/api/look" in url and "threshold" in url]
    with page.expect_response(re.compile(r"/api/look\?.*threshold=0\.8")) as answered:
        slide(page, "Threshold", 0.8)
    box = answered.value.json()["boxes"][0]
    expect(page).to_have_url(re.compile(r"threshold=0\.8"))
    reset = page.get_by_role("button", name="Reset threshold")
    expect(reset).to_be_visible()
    assert box["x1"] > box["x0"] and answered.value.json()["threshold"]["value"] == 0.8
    reset.click()
    expect(reset).to_be_hidden()
    expect(page).not_to_have_url(re.compile("threshold"))


def test_the_boxes_in_the_browser_are_the_servers(page: Any) -> None:
    """At every threshold, to within two cells of the small map that the browser has."""
    page.goto("/look?model=simpool+(gamma+1.25)")
    at_rest(page)
    far = page.evaluate(
        """async () => {
          const { largestBox } = await import("/static/maps.js");
          const photo = document.querySelector(".tile").dataset.photo;
          const answers = [];
          for (const threshold of [0.1, 0.3, 0.5, 0.7, 0.9]) {
            const query = `photo=${photo}&model=simpool+(gamma+1.25)&threshold=${threshold}`;
            const look = await (await fetch(`/api/look?${query}`)).json();
            const [own, theirs] = [largestBox(look.scores, threshold), look.boxes[0]];
            const { side } = look.scores;
            answers.push(Math.max(
              Math.abs(own.x0 - theirs.x0 / look.width), Math.abs(own.x1 - theirs.x1 / look.width),
              Math.abs(own.y0 - theirs.y0 / look.height), Math.abs(own.y1 - theirs.y1 / look.height)) * side);
          }
          return answers;
        }"""
    )
    assert len(far) == 5 and max(far) <= 2.01


def test_a_patch_tells_its_weight(page: Any) -> None:
    page.goto("/look?model=simpool+(gamma+1.25)")
    at_rest(page)
    area = page.locator(".stage canvas").bounding_box()
    page.mouse.move(area["x"] + 0.9 * area["width"], area["y"] + 0.1 * area["height"])
    reading = page.locator(".reading")
    expect(reading).to_have_text(re.compile(r"\d% .* × .* \d+(st|nd|rd|th) of \d+"))
    page.mouse.move(0, 0)
    page.locator(".stage").focus()
    page.keyboard.press("ArrowRight")
    expect(reading).to_have_text(
        re.compile(r"\b1st of \d+")
    )  # the first key shows where most weight is
    first = reading.inner_text()
    page.keyboard.press("ArrowDown" if "row 1," in first else "ArrowUp")
    expect(reading).not_to_have_text(first)
    page.keyboard.press("Escape")
    expect(reading).to_have_text(re.compile(r"\d × \d+ "))  # no patch: how many there are


def test_a_photograph_of_ones_own(page: Any, photograph: Path, context: Any) -> None:
    page.goto("/look")
    at_rest(page)
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Your photograph").click()
    chooser.value.set_files(photograph)
    expect(page).to_have_url(re.compile(r"photo=\w+"))
    expect(page.locator(".tile.own[aria-pressed=true]")).to_be_visible()
    at_rest(page)
    assert page.locator(".stage canvas").evaluate("canvas => [canvas.width, canvas.height]") == [
        960,
        720,
    ]
    page.get_by_label("Model", exact=True).select_option("gap")
    expect(page).to_have_url(re.compile("model=gap"))
    at_rest(page)
    shown, names = pixels(page), page.locator(".classes .name").all_inner_texts()
    other = context.new_page()  # the address is all that is needed to see the same
    other.goto(page.url)
    at_rest(other)
    assert other.locator(".classes .name").all_inner_texts() == names and pixels(other) == shown


def test_pasted_and_dropped(page: Any, photograph: Path) -> None:
    page.goto("/look")
    at_rest(page)
    paste(page, photograph.read_bytes())
    expect(page.locator(".tile.own[aria-pressed=true]")).to_be_visible()
    first = page.url
    page.evaluate(
        """bytes => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([new Uint8Array(bytes)], "x.png", { type: "image/png" }));
          document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        list(_png()),
    )
    expect(page).not_to_have_url(first)
    at_rest(page)
    page.go_back()
    expect(page).to_have_url(first)
    at_rest(page)


def test_several_photographs(page: Any, photograph: Path, tmp_path: Path) -> None:
    """A card each, also for a file that is not an image; a card opens its photograph."""
    page.allowed = ["status of 415"]
    page.goto("/look")
    at_rest(page)
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    (tmp_path / "small.png").write_bytes(_png())
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Your photograph").click()
    chooser.value.set_files([photograph, tmp_path / "broken.jpg", tmp_path / "small.png"])
    batch = page.get_by_role("region", name="Several photographs")
    expect(batch.get_by_role("status")).to_contain_text("1 file could not be used")
    first, broken, last = batch.locator(".card").all()
    for card, name in ((first, "photograph.jpg"), (last, "small.png")):
        expect(card).to_contain_text(re.compile(rf"{name}.+, \d+%"))
    expect(broken).to_contain_text("not an image")
    before = page.url
    broken.click()
    assert page.url == before
    first.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"photo=\w+"))
    at_rest(page)
    batch.get_by_role("button", name="Close").click()
    expect(batch).to_be_hidden()


def test_what_is_no_image_is_told_in_a_sentence(page: Any, tmp_path: Path) -> None:
    page.allowed = ["status of 415"]
    page.goto("/look")
    at_rest(page)
    (tmp_path / "page.jpg").write_bytes(b"<html>no image</html>")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Your photograph").click()
    chooser.value.set_files(tmp_path / "page.jpg")
    said = page.locator(".picker.bad .hint")
    expect(said).to_be_visible()
    assert len(said.inner_text()) > 20 and "Traceback" not in said.inner_text()
    assert page.locator(".classes li").count() == 5  # what was there is still there


@pytest.mark.parametrize("photo", ["0" * 32, "zzz"])
def test_a_photograph_that_is_gone(page: Any, photo: str) -> None:
    """One plain sentence, whether it was forgotten or never was one, and nothing of another photograph beside it."""
    page.allowed = ["status of 404"]
    page.goto(f"/look?photo={photo}")
    expect(page.get_by_role("alert")).to_have_text(re.compile("^[^.]+[a-z]\\.$"))
    for part in (".look", ".beside", ".tile.own"):
        expect(page.locator(part)).to_be_hidden()
    page.locator(".tile").first.click()
    at_rest(page)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_what_an_address_cannot_mean_is_as_if_it_were_not_there(page: Any) -> None:
    page.goto("/look?model=nobody&map=magic&threshold=7")
    at_rest(page)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert page.get_by_label("Model", exact=True).input_value() == "run"
    assert page.locator(".classes li").count() == 5


def test_a_line_of_a_picture_is_seen(page: Any) -> None:
    """Three pixels high: stretched, and the patches are where the pointer is."""
    page.goto("/look?model=simpool+(gamma+1.25)")
    at_rest(page)
    paste(page, _png((4000, 3)), "image/png")
    expect(page.locator("figcaption .status")).to_have_text(re.compile("4000 × 3 "))
    assert page.locator(".stage canvas").evaluate("canvas => [canvas.width, canvas.height]") == [
        960,
        120,
    ]
    area = page.locator(".stage canvas").bounding_box()
    assert area["height"] >= 60
    page.mouse.move(area["x"] + 0.99 * area["width"], area["y"] + 0.99 * area["height"])
    patches = re.search(r"row (\d+), column (\d+)", page.locator(".reading").inner_text())
    assert patches and patches[1] == patches[2] != "1", "the last of as many rows as columns"


def test_a_threshold_that_nobody_calibrated_says_so(page: Any) -> None:
    """And where its box would be the whole picture, it begins where there is one."""
    with page.expect_response(re.compile("/api/look.*model=run&map=auto")) as answered:
        page.goto("/look?model=run")
    at_rest(page)
    threshold = answered.value.json()["threshold"]
    assert threshold["default"]
    expect(page.locator(".panel .hint", has_text=threshold["source"])).to_be_visible()
    found = page.evaluate(
        """async () => {
          const { startThreshold } = await import("/static/overlay.js");
          const scores = { side: 4, values: [...Array(4).fill(100), ...Array(12).fill(255)] };
          const look = (guessed, x1) => ({
            threshold: { value: 0.1, default: guessed }, scores: { ...scores }, width: 10, height: 10,
            boxes: [{ x0: 0, y0: 0, x1, y1: 10 }],
          });
          return [startThreshold(look(true, 10)), startThreshold(look(false, 10)), startThreshold(look(true, 5))];
        }"""
    )
    assert found == [0.4, 0.1, 0.1]  # 100 of 255 is between 0.35 and 0.4


def test_a_photograph_that_the_server_forgot_is_sent_again(page: Any, photograph: Path) -> None:
    """A server that was started again has no photographs; the page still has its own."""
    page.allowed = ["status of 410"]
    page.goto("/look?model=cls")
    at_rest(page)
    paste(page, photograph.read_bytes())
    expect(page.locator(".tile.own[aria-pressed=true]")).to_be_visible()
    at_rest(page)
    answers = iter([{"status": 410, "json": {"detail": "This photograph is no longer kept."}}])

    def forget_once(route: Any) -> None:
        answer = next(answers, None)
        if answer is None:
            route.continue_()
        else:
            route.fulfill(**answer)

    # Without `times=1`, which would stop the interception while the page sends the photograph.
    page.route(re.compile("/api/look.*model=gap&map=auto"), forget_once)
    with page.expect_response(re.compile("/api/photos$")) as sent:
        page.get_by_label("Model", exact=True).select_option("gap")
    assert sent.value.status == 201
    at_rest(page)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_picture_can_be_kept(page: Any) -> None:
    page.goto("/look")
    at_rest(page)
    # Without frames to draw, Chromium encodes a canvas only after six seconds.
    page.evaluate("() => { const next = () => requestAnimationFrame(next); next(); }")
    with page.expect_download() as kept:
        page.get_by_role("button", name="Download picture").click()
    assert kept.value.suggested_filename.endswith(".png")
    assert Path(kept.value.path()).read_bytes()[:4] == b"\x89PNG"


def test_by_keyboard_alone(page: Any) -> None:
    """From the address bar to another example, another model and a fainter overlay."""
    page.goto("/look")
    at_rest(page)
    _tab_to(page, ".tile")
    chosen = page.locator(".tile[aria-pressed=true]").get_attribute("data-photo")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(page.locator(f".tile[data-photo='{chosen}']")).to_have_attribute("aria-pressed", "false")
    at_rest(page)
    _tab_to(page, ".panel select")
    page.keyboard.press("ArrowDown")
    expect(page).to_have_url(re.compile("model="))
    at_rest(page)
    before = pixels(page)
    _tab_to(page, ".panel input[type=range]")
    page.keyboard.press("Home")
    assert pixels(page) != before


def _tab_to(page: Any, selector: str) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none"  # where the focus is can be seen
            return
    raise AssertionError(f"{selector} is not reached with the Tab key")


def _png(size: tuple[int, int] = (100, 150)) -> bytes:
    from io import BytesIO

    from PIL import Image

    into = BytesIO()
    Image.new("RGB", size, (20, 90, 160)).save(into, "PNG")
    return into.getvalue()

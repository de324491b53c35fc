// The map of the index: every image is a point, and a rectangle filters the search.
import { cancelled, request } from "./api.js";
import { counted, el, errorBox, percent, status, svg } from "./dom.js";
import { entryPicture, patient } from "./photos.js";

const STEP = 0.02; // of the cursor, for an arrow key
const SMALLEST = 0.01; // side of a rectangle: a smaller one is a click
const NEAR = 24; // pixels between the pointer and the image that it shows
const COLOURS = 8; // of the theme; more classes have colours of equal lightness
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// `select(region, entry)` filters by x0, y0, x1, y1, entry is in its middle; `open(entry)` searches with an image.
export function indexMap({ signal, select, open }) {
  let [map, region, loading] = [null, undefined, false];
  let [start, cursor, pinned] = [null, [0.5, 0.5], false];
  const [points, marks] = [svg("g"), svg("path", { class: "marks" })];
  const [box, cross] = [svg("rect", { class: "region" }), svg("path", { class: "cursor" })];
  const plane = svg("svg", {
    viewBox: "0 0 1 1", preserveAspectRatio: "none", class: "plane", tabindex: 0, role: "application",
    "aria-roledescription": "map", "aria-label": "Map of the index: arrow keys move, with Shift they select a " +
      "rectangle, Enter searches with the nearest image, Escape clears the selection",
  }, marks, cross, points, box);
  const statusLine = status();
  const clear = el("button", { type: "button", class: "small", onclick: () => select(undefined) }, "Clear selection");
  const legend = el("ul", { class: "legend" });
  const note = el("p", { class: "hint" });
  const preview = el("div", { class: "preview" });
  const body = el("div", { class: "ground", hidden: true },
    el("div", {}, el("div", { class: "frame" }, plane), el("div", { class: "row" }, statusLine, clear), legend, note), preview);
  const errorArea = el("div");
  const element = el("details", { class: "more index-map", ontoggle: load }, el("summary", {}, "Map of the index"),
    errorArea, body);

  async function load() {
    if (!element.open || map || loading) return;
    loading = true;
    errorArea.replaceChildren(el("p", { class: "status busy" }, "Loading …"));
    try {
      map = await request("/api/map", {}, { signal });
      errorArea.replaceChildren();
      body.hidden = false;
      drawPoints();
      drawRegion();
    } catch (error) {
      if (!cancelled(error)) errorArea.replaceChildren(errorBox(error, load));
    }
    loading = false;
  }

  const dots = (places) => places.map((i) => `M${map.x[i]} ${map.y[i]}h0`).join("");

  function drawPoints() {
    const members = map.classes.map(() => []);
    map.labels.forEach((label, i) => members[label].push(i));
    const few = map.classes.length <= COLOURS;
    points.replaceChildren(...members.map((places, label) => {
      const path = svg("path", { d: dots(places), class: few ? `g${label}` : "" });
      if (!few) path.style.setProperty("--own", `oklch(0.63 0.14 ${(360 * label) / members.length})`);
      return path;
    }));
    if (few) legend.replaceChildren(...map.classes.map((name, label) => el("li", { class: `g${label}` }, name)));
    const [shown, many] = [map.entries.length, map.classes.length];
    note.textContent = `${shown < map.images ? `${shown.toLocaleString("en")} of ` : ""}${counted(map.images, "image")}` +
      `${many > 1 ? `; ${many} classes or folders have a colour each` : ""}. Images that the model finds similar are close, ` +
      `as far as two principal components show it: ${percent(map.variance)} of the variance.`;
    preview.replaceChildren(el("p", { class: "hint" }, "Point at an image to see it. Drag a rectangle to search inside it."));
  }

  function drawRegion(corners = region) {
    const [x0, y0, x1, y1] = corners ?? [0, 0, 0, 0];
    for (const [name, value] of Object.entries({ x: x0, y: y0, width: x1 - x0, height: y1 - y0 })) box.setAttribute(name, value);
    const many = corners ? inside(corners).length : 0;
    statusLine.say(corners ? `${counted(many, "image")} selected.` : "");
    clear.hidden = !region;
  }

  const inside = ([x0, y0, x1, y1]) => map.entries.map((_, i) => i)
    .filter((i) => map.x[i] >= x0 && map.x[i] <= x1 && map.y[i] >= y0 && map.y[i] <= y1);

  function nearest([x, y], places = map.entries.map((_, i) => i)) {
    const { width, height } = plane.getBoundingClientRect();
    const distance = (i) => Math.hypot((map.x[i] - x) * width, (map.y[i] - y) * height);
    const best = places.reduce((a, b) => (distance(b) < distance(a) ? b : a));
    return { best, pixels: distance(best) };
  }

  function show(place) {
    points.childNodes.forEach((path, label) => path.classList.toggle("other", place !== null && label !== map.labels[place]));
    cross.setAttribute("d", place === null ? "" : dots([place]));
    if (place === null || preview.dataset.entry === String(map.entries[place])) return;
    const [entry, name] = [map.entries[place], map.classes[map.labels[place]]];
    preview.dataset.entry = entry;
    const image = el("img", { src: entryPicture(entry, 256), alt: name });
    preview.replaceChildren(patient(image, () => image.remove()), el("strong", {}, name),
      el("button", { type: "button", class: "small", onclick: () => open(entry) }, "Search with this image"));
  }

  const rectangle = ([x0, y0], [x1, y1]) => [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];

  // Keep the old rectangle if the new one is too small or empty.
  function finish(end) {
    const corners = rectangle(start, end).map((value) => Number(value.toFixed(3)));
    start = null;
    const large = Math.min(corners[2] - corners[0], corners[3] - corners[1]) > SMALLEST;
    const places = large ? inside(corners) : [];
    if (!places.length) return drawRegion();
    const middle = [(corners[0] + corners[2]) / 2, (corners[1] + corners[3]) / 2];
    select(corners, map.entries[nearest(middle, places).best]);
  }

  const clamp = (value) => Math.min(Math.max(value, 0), 1);
  const at = ({ clientX, clientY }) => {
    const { left, top, width, height } = plane.getBoundingClientRect();
    return [clamp((clientX - left) / width), clamp((clientY - top) / height)];
  };
  plane.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    plane.setPointerCapture(event.pointerId);
    start = at(event);
  });
  plane.addEventListener("pointermove", (event) => {
    if (start) return show(null), drawRegion(rectangle(start, at(event)));
    if (pinned) return;
    const { best, pixels } = nearest(at(event));
    show(pixels < NEAR ? best : null);
  });
  plane.addEventListener("pointerup", (event) => {
    if (!start) return;
    const end = at(event);
    if (Math.hypot(end[0] - start[0], end[1] - start[1]) < SMALLEST) { // a click keeps the image that it shows
      const { best, pixels } = nearest(end);
      pinned = pixels < NEAR;
      show(pinned ? best : null);
    }
    cursor = end;
    finish(end);
  });
  plane.addEventListener("pointercancel", () => ((start = null), drawRegion()));
  plane.addEventListener("pointerleave", () => pinned || show(null));
  plane.addEventListener("keydown", (event) => {
    const move = ARROWS[event.key];
    if (move) {
      event.preventDefault();
      if (event.shiftKey) start ??= cursor;
      cursor = cursor.map((value, i) => clamp(value + STEP * move[i]));
      show(nearest(cursor).best);
      if (start) drawRegion(rectangle(start, cursor));
      else statusLine.say(map.classes[map.labels[nearest(cursor).best]]);
    } else if (event.key === "Enter") open(map.entries[nearest(cursor).best]);
    else if (event.key === "Escape" && region) select(undefined);
  });
  plane.addEventListener("keyup", (event) => event.key === "Shift" && start && finish(cursor));

  // Show the selection, and the results of a search.
  element.show = (corners) => {
    region = corners;
    if (region) element.open = true;
    if (map) drawRegion();
  };
  element.mark = (entries) => {
    const results = new Set(entries.map(String));
    if (map) marks.setAttribute("d", dots(map.entries.map((_, i) => i).filter((i) => results.has(String(map.entries[i])))));
  };
  return element;
}

// The map of the index: every image is a point, and a lasso filters the search.
import { cancelled, request } from "./api.js";
import { counted, el, errorBox, percent, status, svg } from "./dom.js";
import { entryPicture, patient } from "./photos.js";
import { MAX_CORNERS, isInside, simplify } from "./polygon.js";

const STEP = 0.02; // of the cursor, for an arrow key
const SMALLEST = 0.01; // width and height of a region: a smaller one is a click
const NEAR = 24; // pixels between the pointer and the image that it shows
const COLOURS = 8; // of the theme; more classes have colours of equal lightness
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// `select(region, entry)` filters by a polygon [[x, y], ...], entry is in its middle; `open(entry)` searches with an image.
export function indexMap({ signal, select, open }) {
  let [map, region, loading] = [null, undefined, false];
  let [lasso, start, cursor, pinned] = [null, null, [0.5, 0.5], false]; // path of the pointer, start of Shift + arrows
  const [points, marks] = [svg("g"), svg("path", { class: "marks" })];
  const [outline, cross] = [svg("polygon", { class: "region" }), svg("path", { class: "cursor" })];
  const plane = svg("svg", {
    viewBox: "0 0 1 1", preserveAspectRatio: "none", class: "plane", tabindex: 0, role: "application",
    "aria-roledescription": "map", "aria-label": "Map of the index: arrow keys move, with Shift they select a " +
      "rectangle, Enter searches with the nearest image, Escape clears the selection",
  }, marks, cross, points, outline);
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
    preview.replaceChildren(el("p", { class: "hint" }, "Point at an image to see it. Draw around images to search among them."));
  }

  function drawRegion(polygon = region) {
    outline.setAttribute("points", (polygon ?? []).join(" "));
    statusLine.say(polygon ? `${counted(inside(polygon).length, "image")} selected.` : "");
    clear.hidden = !region;
  }

  const inside = (polygon) => map.entries.map((_, i) => i).filter((i) => isInside([map.x[i], map.y[i]], polygon));

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

  const rectangle = ([x0, y0], [x1, y1]) => [[x0, y0], [x1, y0], [x1, y1], [x0, y1]];

  const extent = (polygon) => Math.min(...[0, 1].map((axis) => {
    const values = polygon.map((point) => point[axis]);
    return Math.max(...values) - Math.min(...values);
  }));

  // Keep the old region if the new one is too small or empty.
  function finish(polygon) {
    [lasso, start] = [null, null];
    const corners = polygon.map((point) => point.map((value) => Number(value.toFixed(3))));
    const places = extent(corners) > SMALLEST ? inside(corners) : [];
    if (!places.length) return drawRegion();
    const mean = (values) => places.reduce((sum, i) => sum + values[i], 0) / places.length;
    select(corners, map.entries[nearest([mean(map.x), mean(map.y)], places).best]);
  }

  const clamp = (value) => Math.min(Math.max(value, 0), 1);
  const at = ({ clientX, clientY }) => {
    const { left, top, width, height } = plane.getBoundingClientRect();
    return [clamp((clientX - left) / width), clamp((clientY - top) / height)];
  };
  plane.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    plane.setPointerCapture(event.pointerId);
    lasso = [at(event)];
  });
  plane.addEventListener("pointermove", (event) => {
    if (lasso) {
      lasso.push(at(event));
      if (lasso.length > 2 * MAX_CORNERS) lasso = simplify(lasso, MAX_CORNERS);
      return show(null), drawRegion(lasso);
    }
    if (pinned) return;
    const { best, pixels } = nearest(at(event));
    show(pixels < NEAR ? best : null);
  });
  plane.addEventListener("pointerup", (event) => {
    if (!lasso) return;
    cursor = at(event);
    lasso.push(cursor);
    if (lasso.every(([x, y]) => Math.hypot(x - lasso[0][0], y - lasso[0][1]) < SMALLEST)) { // a click keeps the image that it shows
      const { best, pixels } = nearest(cursor);
      pinned = pixels < NEAR;
      show(pinned ? best : null);
      [lasso, start] = [null, null];
      return drawRegion();
    }
    finish(simplify(lasso, MAX_CORNERS));
  });
  plane.addEventListener("pointercancel", () => ((lasso = null), drawRegion()));
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
  plane.addEventListener("keyup", (event) => event.key === "Shift" && start && finish(rectangle(start, cursor)));

  // Show the selection, and the results of a search.
  element.show = (polygon) => {
    region = polygon;
    if (region) element.open = true;
    if (map) drawRegion();
  };
  element.mark = (entries) => {
    const results = new Set(entries.map(String));
    if (map) marks.setAttribute("d", dots(map.entries.map((_, i) => i).filter((i) => results.has(String(map.entries[i])))));
  };
  return element;
}

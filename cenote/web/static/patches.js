// Show the weight of the patch under the pointer, or selected with the arrow keys.
import { el, percent } from "./dom.js";
import { cellOf, highest } from "./maps.js";

// `point(patch)` draws it, null for none. `reading` shows its weight.
export function patches(stage, canvas, reading, point) {
  let [map, shown, cursor] = [null, null, null];

  function show(patch) {
    if (String(patch) === String(shown)) return;
    shown = patch;
    point(patch);
    showText();
  }

  function showText() {
    if (!map || !shown) {
      reading.textContent = map
        ? `Point at a patch, or use the arrow keys on the image: ${map.rows} × ${map.columns} patches.`
        : "";
      return;
    }
    const [row, column] = shown;
    const { share, times, place, of } = cellOf(map, row, column);
    reading.replaceChildren(
      el("strong", {}, percent(share, share < 0.1 ? 2 : 1)), " of the total weight, ",
      el("strong", {}, `${times.toPrecision(2)} ×`), " the uniform weight; ",
      `${ordinal(place)} of ${of} patches (row ${row + 1}, column ${column + 1})`);
  }

  stage.addEventListener("pointermove", (event) => {
    if (!map) return;
    const area = canvas.getBoundingClientRect();
    const [x, y] = [(event.clientX - area.left) / area.width, (event.clientY - area.top) / area.height];
    const inside = x >= 0 && y >= 0 && x < 1 && y < 1;
    show(inside ? [Math.floor(y * map.rows), Math.floor(x * map.columns)] : cursor);
  });
  stage.addEventListener("pointerleave", () => show(cursor));
  stage.addEventListener("blur", () => show((cursor = null)));
  stage.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!map || (!step && event.key !== "Escape")) return;
    event.preventDefault();
    if (!step) return show((cursor = null));
    // The first key selects the patch of the highest weight.
    cursor = cursor
      ? [within(cursor[0] + step[0], map.rows), within(cursor[1] + step[1], map.columns)]
      : highest(map);
    show(cursor);
  });

  return {
    of(newMap) {
      [map, shown, cursor] = [newMap, null, null];
      showText();
    },
  };
}

const within = (value, many) => Math.min(Math.max(value, 0), many - 1);

function ordinal(n) {
  const ending = n % 100 > 10 && n % 100 < 14 ? "th" : ["th", "st", "nd", "rd"][n % 10] ?? "th";
  return `${n}${ending}`;
}

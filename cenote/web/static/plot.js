// Accuracy against trained parameters, with the standard deviation over seeds, and names where they fit.
import { el, svg } from "./dom.js";

const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [900, 420, 56, 30, 24, 52];
const [END, FLOOR] = [WIDTH - RIGHT, HEIGHT - BOTTOM];
const LETTER = 7.4;
const TITLE = "Accuracy against parameters";

export function plot({ standings, recommended, recipe }) {
  const rows = standings.filter((row) => row.mean !== null && row.trained > 0);
  if (rows.length < 2) return el("div");
  const groups = [...new Set(rows.map((row) => row.group))];
  const label = `${TITLE}; the table above has the numbers`;
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "plot", role: "img", "aria-label": label });
  const up = upwards(rows, picture);
  const across = acrossOf(rows, picture);
  picture.append(
    svg("line", { class: "tick", x1: LEFT, x2: END, y1: FLOOR, y2: FLOOR }),
    svg("text", { class: "axis", x: (LEFT + END) / 2, y: HEIGHT - 8, "text-anchor": "middle" },
      recipe ? "parameters of the network" : "trained parameters, pool and head"),
    svg("text", { class: "axis", x: LEFT, y: 14 }, "percent"));

  const dots = rows.map((row) => ({ row, x: across(row.trained), y: up(row.mean) }));
  const taken = dots.map(({ x, y }) => [x - 6, y - 6, x + 6, y + 6]);
  for (const { row, x, y } of dots.sort((a, b) => b.row.mean - a.row.mean)) {
    const best = row.name === recommended;
    const name = best ? `${row.name} ★` : row.name;
    const spread = row.deviation ? ` ± ${row.deviation.toFixed(1)}` : "";
    const told = `${row.name}: ${row.mean.toFixed(1)}${spread}, ${row.trained.toLocaleString("en")} trained parameters`;
    const mark = svg("g", { class: `point g${groups.indexOf(row.group) % 8}${best ? " best" : ""}` },
      svg("title", {}, told));
    if (row.deviation) {
      mark.append(svg("line", { x1: x, x2: x, y1: up(row.mean - row.deviation), y2: up(row.mean + row.deviation) }));
    }
    mark.append(svg("circle", { cx: x, cy: y, r: best ? 8 : 5.5 }));
    const spot = place(x, y, name.length * LETTER * (best ? 1.2 : 1), taken);
    if (spot) {
      taken.push(spot);
      mark.append(svg("text", { x: spot[0], y: spot[3] - 4 }, name));
    }
    picture.append(mark);
  }
  const legend = el("ul", { class: "legend" }, groups.map((group, i) => el("li", { class: `g${i % 8}` }, group)));
  return el("figure", { class: "chart" }, el("h2", {}, TITLE),
    el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": TITLE }, picture), legend);
}

function upwards(rows, picture) {
  const low = Math.min(...rows.map((row) => row.mean - (row.deviation ?? 0)));
  const high = Math.max(...rows.map((row) => row.mean + (row.deviation ?? 0)));
  const margin = (high - low || 1) * 0.1;
  const [bottom, top] = [low - margin, Math.min(100, high + margin)];
  const up = (value) => FLOOR - ((Math.min(value, 100) - bottom) / (top - bottom)) * (FLOOR - TOP);
  const step = nice((top - bottom) / 6);
  for (let mark = Math.ceil(bottom / step) * step; mark <= top; mark += step) {
    picture.append(svg("line", { class: "grid", x1: LEFT, x2: END, y1: up(mark), y2: up(mark) }),
      svg("text", { class: "mark", x: LEFT - 8, y: up(mark) + 4, "text-anchor": "end" }, String(+mark.toFixed(2))));
  }
  return up;
}

// A logarithmic axis.
function acrossOf(rows, picture) {
  const logs = rows.map((row) => Math.log10(row.trained));
  const [first, last] = [Math.min(...logs) - 0.1, Math.max(...logs) + 0.1];
  const across = (value) => LEFT + ((Math.log10(value) - first) / (last - first)) * (END - LEFT);
  for (let power = Math.floor(first); power <= last; power++) {
    for (const factor of last - first > 1.5 ? [1, 3] : [1, 1.5, 2, 3, 5, 7]) {
      const mark = factor * 10 ** power;
      if (Math.log10(mark) < first || Math.log10(mark) > last) continue;
      const x = across(mark);
      picture.append(svg("line", { class: "tick", x1: x, x2: x, y1: FLOOR, y2: FLOOR + 5 }),
        svg("text", { class: "mark", x, y: FLOOR + 20, "text-anchor": "middle" }, short(mark)));
    }
  }
  return across;
}

const short = (n) =>
  (n >= 1e6 ? `${+(n / 1e6).toFixed(1)}M` : n >= 1e3 ? `${+(n / 1e3).toFixed(1)}k` : n.toFixed(0));

// A free position for a label, or null; the name is also in the tooltip and in the table.
function place(x, y, width, taken) {
  for (const away of [10, 17]) {
    const [right, left, middle] = [away, -away - width, -width / 2];
    const places = [
      [right, -8], [left, -8], [middle, -away - 16], [middle, away], [right, -22], [right, 8], [left, -22], [left, 8],
    ];
    for (const [dx, dy] of places) {
      const [x0, y0, x1, y1] = [x + dx, y + dy, x + dx + width, y + dy + 16];
      const inside = x0 > LEFT && x1 < WIDTH && y0 > TOP - 6 && y1 < FLOOR;
      if (inside && !taken.some(([a, b, c, d]) => x0 < c && a < x1 && y0 < d && b < y1)) return [x0, y0, x1, y1];
    }
  }
  return null;
}

function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((factor) => factor * power >= least) * power;
}

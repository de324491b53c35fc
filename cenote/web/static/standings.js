// A table of contenders that can be sorted by every column, by pointer and by keyboard.
import { el } from "./dom.js";

const short = (n) =>
  (n >= 1e6 ? `${(n / 1e6).toPrecision(3)}M` : n >= 1e3 ? `${(n / 1e3).toPrecision(3)}k` : String(n));
const fixed = (digits) => (n) => n.toFixed(digits);
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const known = (value) => value !== null && value !== undefined;
const MAPS = { pool: "its own", cam: "CAM", cls: "CLS" };

// Name, value to sort by, how it is written, what it means; a column without any value is left out.
const COLUMNS = [
  { name: "contender", value: (row) => row.name, words: true },
  { name: "group", value: (row) => row.group, words: true },
  {
    name: "accuracy", value: (row) => row.mean, show: accuracy, about: "percent right, mean ± deviation over the seeds",
  },
  { name: "epoch", value: (row) => row.epoch, show: String, about: "epochs trained of the seed that plays" },
  { name: "params", value: (row) => row.parameters, show: short, about: "parameters of the pool" },
  { name: "trained", value: (row) => row.trained, show: short, about: "parameters of the pool and its head" },
  {
    name: "MFLOPs", value: (row) => (known(row.flops) ? row.flops / 1e6 : null),
    about: "multiply-adds of the pool for an image",
    show: (n) => (n === 0 ? "0" : n >= 1000 ? n.toFixed(0) : n.toPrecision(2)),
  },
  { name: "ms", value: (row) => row.ms, show: fixed(2), about: "pool and head, for an image" },
  {
    name: "boxes", value: (row) => (row.boxes?.length ? mean(row.boxes) : null), show: fixed(1),
    about: "MaxBoxAccV2: how often its map gives the right box",
  },
  {
    name: "map", value: (row) => (row.map ? MAPS[row.map] ?? row.map : null), words: true,
    about: "which map the boxes are of",
  },
];

function accuracy(value, row) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", value / 100);
  const spread = row.deviation ? ` ± ${row.deviation.toFixed(1)}` : row.sure === false ? " val" : "";
  return [bar, el("span", {}, `${value.toFixed(1)}${spread}`)];
}

export function standings(target) {
  const head = el("tr");
  const body = el("tbody");
  const said = el("p", { class: "away", role: "status" });
  const table = el("table", { class: "standings" }, el("caption", { class: "away" }, "Standings"),
    el("thead", {}, head), body);
  target.append(el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Standings" }, table), said);
  let sorted = { name: "accuracy", down: true };
  let [rows, best, heads] = [[], null, ""];

  function order() {
    const { value, words } = COLUMNS.find(({ name }) => name === sorted.name);
    const sign = sorted.down ? -1 : 1;
    const compare = (a, b) => sign * (words ? a.localeCompare(b) : a - b);
    return [...rows].sort((a, b) => {
      const [first, second] = [value(a), value(b)];
      if (!known(first) || !known(second)) return known(second) - known(first); // what is not known is last
      return compare(first, second);
    });
  }

  function sort({ name, words }) {
    sorted = { name, down: sorted.name === name ? !sorted.down : !words };
    draw();
    said.textContent = `Sorted by ${name}, ${sorted.down ? "from high to low" : "from low to high"}`;
  }

  function draw() {
    const columns = COLUMNS.filter(({ value }) => rows.some((row) => known(value(row))));
    if (heads !== String(columns.map(({ name }) => name))) { // else the focus would be lost
      heads = String(columns.map(({ name }) => name));
      head.replaceChildren(...columns.map((column) => {
        const properties = { scope: "col", class: column.words ? "" : "number", data: { name: column.name } };
        const press = { type: "button", title: column.about, onclick: () => sort(column) };
        return el("th", properties, el("button", press, column.name));
      }));
    }
    for (const cell of head.children) {
      if (cell.dataset.name !== sorted.name) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    }
    body.replaceChildren(...order().map((row) => el("tr", { class: row.name === best ? "best" : "" },
      el("th", { scope: "row" }, `${row.name}${row.tie ? " =" : ""}${row.name === best ? " ★" : ""}`),
      columns.slice(1).map((column) => cell(column, row)))));
  }

  function cell({ name, value, show, words }, row) {
    const stopped = row.failed && name === "accuracy";
    const found = value(row);
    const shown = known(found) ? (words ? found : show(found, row)) : stopped ? "stopped" : "";
    return el("td", { class: words ? "" : "number", title: stopped ? row.failed : undefined }, shown);
  }

  return {
    show(found, recommended) {
      [rows, best] = [found, recommended];
      draw();
    },
  };
}

// A table of candidates that can be sorted by every column, by pointer and by keyboard.
// The columns of a finished tournament are declared in cenote/report/tournament.py.
import { el } from "./dom.js";

const isScore = ({ name }) => name === "accuracy" || name === "mAP";
const known = (value) => value !== null && value !== undefined;

// While it trains, and for reports of older versions: columns as in a report.
const PROGRESS = [
  { name: "candidate", numeric: false, cell: (row) => ({ value: row.name, text: row.name }) },
  { name: "group", numeric: false, cell: (row) => ({ value: row.group, text: row.group }) },
  {
    name: "accuracy", numeric: true, help: "percent, mean over the seeds",
    cell: ({ mean, sure }) => ({
      value: mean, text: known(mean) ? `${mean.toFixed(1)}${sure === false ? " val" : ""}` : "",
    }),
  },
  {
    name: "epoch", numeric: true, help: "of the training that runs",
    cell: ({ epoch }) => ({ value: epoch, text: known(epoch) ? String(epoch) : "" }),
  },
];

// The rows of a report with its columns; place and marks are shown beside the name.
function reportColumns({ columns }) {
  return columns.map((column, i) => ({ ...column, cell: (row) => row.cells[i] }))
    .filter(({ name }) => name && name !== "#");
}

function key({ numeric }, { value }) {
  return numeric && known(value) ? parseFloat(value) : value; // "91.2 ± 0.4" is sorted by 91.2
}

function accuracy(row, text) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", row.mean / 100);
  return [bar, el("span", {}, text)];
}

export function standings(target) {
  const head = el("tr");
  const body = el("tbody");
  const statusLine = el("p", { class: "away", role: "status" });
  const table = el("table", { class: "standings" }, el("caption", { class: "away" }, "Standings"),
    el("thead", {}, head), body);
  target.append(el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": "Standings" }, table), statusLine);
  let sorted = { name: "accuracy", down: true };
  let [columns, rows, best, heads] = [[], [], null, ""];

  function order() {
    const column = columns.find(({ name }) => name === sorted.name) ?? columns.find(isScore);
    const sign = sorted.down ? -1 : 1;
    const compare = (a, b) => sign * (column.numeric ? a - b : a.localeCompare(b));
    return [...rows].sort((a, b) => {
      const [first, second] = [a, b].map((row) => key(column, column.cell(row)));
      if (!known(first) || !known(second)) return known(second) - known(first); // unknown values are last
      return compare(first, second);
    });
  }

  function sort({ name, numeric }) {
    sorted = { name, down: sorted.name === name ? !sorted.down : numeric };
    draw();
    statusLine.textContent = `Sorted by ${name}, ${sorted.down ? "from high to low" : "from low to high"}`;
  }

  function draw() {
    const shown = columns.filter(({ cell }) => rows.some((row) => known(cell(row).value)));
    const names = String(shown.map(({ name }) => name));
    if (heads !== names) { // keep the focus if the columns are the same
      heads = names;
      head.replaceChildren(...shown.map((column) => {
        const properties = { scope: "col", class: column.numeric ? "number" : "", data: { name: column.name } };
        const press = { type: "button", title: column.help, onclick: () => sort(column) };
        return el("th", properties, el("button", press, column.name));
      }));
    }
    for (const cell of head.children) {
      if (cell.dataset.name !== sorted.name) cell.removeAttribute("aria-sort");
      else cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
    }
    body.replaceChildren(...order().map((row) => el("tr", { class: row.name === best ? "best" : "" },
      el("th", { scope: "row" }, `${row.name}${row.tie ? " =" : ""}${row.name === best ? " ★" : ""}`),
      shown.slice(1).map((column) => cell(column, row)))));
  }

  function cell(column, row) {
    const { text } = column.cell(row);
    const scored = isScore(column);
    const properties = { class: column.numeric ? "number" : "", title: scored ? row.failed ?? undefined : undefined };
    return el("td", properties, scored && known(row.mean) ? accuracy(row, text) : text);
  }

  return {
    show(found, recommended, declared) {
      rows = declared ? found.map((row, i) => ({ ...row, cells: declared.rows[i] })) : found;
      [columns, best] = [declared ? reportColumns(declared) : PROGRESS, recommended];
      draw();
    },
  };
}

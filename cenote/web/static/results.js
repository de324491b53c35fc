// Search results: a grid, and a dialog for one result.
import { cancelled } from "./api.js";
import { counted, el, openDialog, roving } from "./dom.js";
import { adopt, entryPicture, patient } from "./photos.js";
import { explain } from "./explanation.js";
import { reasoning } from "./reasoning.js";

const labels = ({ label, domain }) => [label, domain].filter(Boolean).join(" · ");

// What an image was found by: "folder: dolphin".
const evidence = ({ matches }) => (matches ?? []).map(({ field, text }) => `${field}: ${text}`);

export function placeholders(many) {
  return el("div", { class: "results", "aria-hidden": "true" },
    Array.from({ length: many }, () => el("div", { class: "result waiting" })));
}

export function resultGrid(response, query, actions) {
  const notes = response.notes.map((note) => el("p", { class: "note", role: "note" }, sentence(note)));
  if (!response.results.length) {
    return el("div", {}, notes, el("p", { class: "lead" }, response.searched
      ? "No results: try fewer words, or another filter."
      : "No image matches the filters: remove one of them."));
  }
  const reasons = () => explain(response, query).map((reason) => el("div", {}, reason));
  const first = response.results.findIndex(({ doubtful }) => doubtful);
  const grid = el("div", { class: "results", role: "group", "aria-label": "Results, the best first" },
    response.results.flatMap((result, place) => [
      first > 0 && place === first && el("p", { class: "apart" }, "Doubtful:"),
      card(result, place, actions, () => closer(response.results, place, reasons, actions)),
    ]));
  roving(grid, ".result");
  return el("div", {}, notes, reasoning(response),
    el("details", { class: "why" }, el("summary", {}, "Explanation"), reasons()), grid);
}

const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;

function shot(result, side, loading) {
  if (result.missing) return gone();
  const alt = result.caption || labels(result) || result.name;
  const image = el("img", { src: entryPicture(result.entry, side), alt, loading });
  return patient(image, () => image.replaceWith(gone()));
}

const gone = () => el("span", { class: "gone" }, "This file no longer exists");

// The dialog has the same two buttons for the keyboard.
function card(result, place, { like, unlike }, onclick) {
  const score = result.score.toFixed(3);
  const name = labels(result) || result.name;
  const told = `${place + 1}: ${name}, score ${score}`;
  const mark = (sign, title, act) => el("button", {
    type: "button", class: "mark", tabIndex: -1, title, "aria-label": `${title}: ${place + 1}`, onclick: () => act(result.entry),
  }, sign);
  return el("div", { class: result.doubtful ? "hit doubtful" : "hit" }, el("button", { type: "button", class: "result", onclick, "aria-label": told },
    shot(result, 256, place < 12 ? "eager" : "lazy"),
    el("span", { class: "told" }, el("span", { class: "name" }, name), el("span", { class: "number" }, score)),
    evidence(result).slice(0, 1).map((text) => el("span", { class: "hint match" }, text)),
    result.duplicates > 0 && el("span", { class: "badge" }, `+${result.duplicates} duplicates`)),
  el("span", { class: "marks" }, mark("+", "More like this", like), mark("−", "Not like this", unlike)));
}

function closer(results, place, reasons, { from, add, look, like, unlike }) {
  const dialog = el("dialog", { class: "closer", "aria-label": "Result" });
  const body = el("div", { class: "inside" });
  const statusLine = el("p", { class: "hint", role: "status" });
  const controller = new AbortController();
  const leave = (then) => () => (dialog.close(), then());
  const act = (name, onclick, kind = "") => el("button", { type: "button", class: kind, onclick }, name);

  async function lookAt(entry) {
    statusLine.textContent = "Loading …";
    try {
      const { photo } = await adopt(entry, { signal: controller.signal });
      leave(() => look(photo))();
    } catch (error) {
      if (!cancelled(error)) statusLine.textContent = error.message;
    }
  }

  function show(at) {
    place = (at + results.length) % results.length;
    const result = results[place];
    const alike = counted(result.duplicates, "near duplicate");
    const facts = [labels(result), result.name, `${result.width} × ${result.height} pixels`,
      `score ${result.score.toFixed(4)}`, ...evidence(result),
      result.matches?.length > 0 && `similarity ${result.visual.toFixed(2)}`, result.duplicates > 0 && alike];
    statusLine.textContent = "";
    body.replaceChildren(shot(result, 1024, "eager"), el("div", { class: "facts" },
      el("h2", {}, `${place + 1} of ${results.length}`), result.caption && el("p", {}, result.caption),
      el("ul", {}, facts.filter(Boolean).map((fact) => el("li", {}, fact))),
      el("h3", {}, "Explanation"), el("div", { class: "why hint" }, reasons()),
      el("div", { class: "row actions" },
        act("Search with this image", leave(() => from(result.entry)), "main"),
        act("… and add a text", leave(() => add(result.entry))),
        act("More like this", leave(() => like(result.entry))),
        act("Not like this", leave(() => unlike(result.entry))),
        look && !result.missing && act("Show in Look", () => lookAt(result.entry))), statusLine));
  }

  const arrow = (sign, name, step) =>
    el("button", { type: "button", class: "small", "aria-label": name, onclick: () => show(place + step) }, sign);
  dialog.append(el("div", { class: "row ahead" }, arrow("←", "Previous", -1), arrow("→", "Next", 1),
    act("Close", () => dialog.close(), "small")), body);
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") show(place + 1);
    if (event.key === "ArrowLeft") show(place - 1);
  });
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  dialog.addEventListener("close", () => (controller.abort(), dialog.remove()));
  document.body.append(dialog);
  show(place);
  openDialog(dialog);
}

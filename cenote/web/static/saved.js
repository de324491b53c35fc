// Saved searches: a list to open and to delete, and a form to save the search that is shown.
import { Latest, cancelled, request } from "./api.js";
import { el } from "./dom.js";

// `open(query)` shows a search; `current()` returns the parameters of the one that is shown.
export function savedSearches({ signal, open, current, say }) {
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  const list = el("ul", { class: "row", "aria-label": "Saved searches" });
  const name = el("input", { type: "text", placeholder: "Name", maxLength: 80, required: true, "aria-label": "Name of the search" });
  const form = el("form", { class: "row", onsubmit: save }, name, el("button", { type: "submit", class: "small" }, "Save search"));
  const element = el("div", { class: "saved row", hidden: true }, list, form);

  async function ask(path, parameters, method) {
    try {
      await latest.run(async (own) => show(await request(path, parameters, { signal: own, method })));
      return true;
    } catch (error) {
      if (!cancelled(error)) say(error.message);
      return false;
    }
  }

  const path = (title) => `/api/searches/${encodeURIComponent(title)}`;

  async function save(event) {
    event.preventDefault();
    const title = name.value.trim();
    if (title && (await ask(path(title), current(), "PUT"))) name.value = "";
  }

  function show({ searches, can_save: canSave }) {
    element.hidden = !canSave;
    list.replaceChildren(...searches.map(({ name: title, query }) => el("li", { class: "chip" },
      el("button", {
        type: "button", disabled: !query, onclick: () => open(query),
        title: query ? "Open" : `This page has not all of its options: cenote search --saved "${title}" runs it`,
      }, title),
      el("button", { type: "button", "aria-label": `Delete ${title}`, onclick: () => ask(path(title), {}, "DELETE") }, "×"))));
  }

  ask("/api/searches", {}, "GET");
  return element;
}

// Search by image, by text or by both; every result can start the next search.
import { Failure, Latest, address, request, cancelled } from "./api.js";
import { indexMap } from "./index_map.js";
import { resultGrid, placeholders } from "./results.js";
import { choice, counted, el, field, hero, slider, status, errorBox } from "./dom.js";
import { requestPhoto, entryPicture, isPhoto, patient, picker, picture } from "./photos.js";
import { MAX_CORNERS } from "./polygon.js";
import { savedSearches } from "./saved.js";

export const title = "Search";
const TOP = 24;
const NAMES = ["photo", "entry", "text", "not", "weight", "method", "class", "domain", "like", "unlike", "region"];
const EXAMPLES = { like: "More like", unlike: "Not like" };
const MOST = 50; // examples of a kind
const DELAY = 150; // milliseconds between the last move of the slider and the search
const AUTO = "auto: text, image, or the best method for both that this index supports.";

export function enter(main, { about, signal, set, go }) {
  const { index } = about;
  if (!index) {
    main.append(hero("Search", "No index is served here. ", el("code", {}, "cenote index"),
      " creates an index of a folder of images, and ", el("code", {}, "cenote serve RUN --index INDEX"), " serves it."));
    return { show() {} };
  }
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  let shown = null;
  let chosen = false; // the query is in the URL
  let held = false; // the weight's slider is being moved
  let timer = 0;
  signal.addEventListener("abort", () => clearTimeout(timer));

  const words = (placeholder) =>
    el("input", { type: "search", placeholder, autocomplete: "off", enterKeyHint: "search" });
  const [text, without] = [words("a dog, a sketch, at night …"), words("")];
  const given = el("div", { class: "given" });
  const takes = picker({
    limits: about.limits, signal, label: "An image",
    taken: ({ photo }) => change({ photo, entry: undefined }),
  });
  const methods = choice([["auto", "auto"], ...index.methods.map(({ name }) => [name, name])], "auto",
    (method) => set({ method: method === "auto" ? undefined : method, weight: undefined }));
  const aboutMethod = el("p", { class: "hint" });
  const filters = [["class", "Class", index.classes], ["domain", "Domain", index.domains]]
    .filter(([, , names]) => names.length)
    .map(([key, label, names]) => {
      const select = choice([["", "any"], ...names.map((one) => [one, one])], "", (one) => set({ [key]: one }));
      return { key, select, element: field(label, select) };
    });
  const auto = el("button", { type: "button", class: "small", onclick: () => set({ weight: undefined }) }, "Auto");
  const weight = slider("Weight of the text", {
    value: 0.5, step: 0.01,
    words: (value) => `${held || shown?.weight ? "" : "auto, "}${Math.round(100 * value)}% text`,
    input: (value) => {
      held = true;
      clearTimeout(timer);
      timer = setTimeout(() => weigh(value), DELAY);
    },
    change: (value) => ((held = false), clearTimeout(timer), weigh(value)),
  });
  const weigh = (value) => set({ weight: value, method: undefined }, { replace: true });
  const ends = el("div", { class: "row ends", "aria-hidden": "true" }, el("span", {}, "image"), el("span", {}, "text"));
  const balance = el("div", { class: "balance", hidden: true }, weight, ends, auto);
  const examples = el("div", { class: "examples" });
  const form = el("form", { class: "query", role: "search", onsubmit: submit },
    el("div", { class: "ask" }, el("div", { class: "image" }, given, takes),
      el("div", { class: "words" }, field("Text", text), field("Without", without),
        el("button", { type: "submit", class: "main" }, "Search"))),
    examples, balance,
    el("details", { class: "more" }, el("summary", {}, "Method and filters"),
      el("div", { class: "row" }, field("Method", methods), filters.map(({ element }) => element)), aboutMethod));
  const hints = el("div", { class: "hints", role: "group", "aria-label": "Suggestions" },
    index.suggestions.map((one) =>
      el("button", { type: "button", class: "chip", onclick: () => set(only({ text: one })) }, one)),
    index.entries.slice(0, 12).map((entry) => el("button", {
      type: "button", class: "tile", "aria-label": `Similar to image ${entry}`, title: "More like this",
      onclick: () => set(only({ entry })),
    }, el("img", { src: entryPicture(entry, 96), alt: "", loading: "lazy" }))));
  // Without a query, the image in the middle is one: all others are ranked by their similarity to it.
  const map = indexMap({
    signal, select: (region, entry) => set(chosen || !region ? { region } : { region, entry }),
    open: (entry) => set(only({ entry, region: shown.region })),
  });
  const statusLine = status();
  const table = el("a", { class: "hint", download: "results.csv", hidden: true }, "Download as CSV");
  const saved = savedSearches({
    signal, say: (sentence) => statusLine.say(sentence), current: () => shown,
    open: (query) => (set(only(query)), scrollTo({ top: 0 })),
  });
  const errorArea = el("div");
  const results = el("div", { class: "answer" });
  main.append(
    hero("Search by image, by text, by both",
      `Among ${counted(index.images, "image")}, with ${index.model.split("/").pop()}. An image and a text together ` +
      "find images similar to this one, modified by the text."),
    form, hints, map, el("div", { class: "row tools" }, saved, table), statusLine, errorArea, results);

  // A new query without parameters of the previous one.
  const only = (parameters) => ({ ...Object.fromEntries(NAMES.map((name) => [name, undefined])), ...parameters });

  // Drop a method or a weight that does not fit the new query.
  function change(parameters) {
    const query = { ...shown, ...parameters };
    const method = index.methods.find(({ name }) => name === query.method);
    const [image, words] = [Boolean(query.photo || query.entry), Boolean(query.text || query.not)];
    const fits = method ? method.image === image && method.text === words : !query.method; // the name may be unknown
    set({ ...parameters, ...(fits ? {} : { method: undefined }), ...(image && words ? {} : { weight: undefined }) });
  }

  // Add an example, or remove it; what was the opposite before is not any more.
  function mark(kind, entry, added = true) {
    const other = kind === "like" ? "unlike" : "like";
    const without = (list) => list.filter((one) => one !== String(entry));
    const marked = added ? [...without(shown[kind]), String(entry)].slice(-MOST) : without(shown[kind]);
    change({ ...shown, [kind]: marked, [other]: without(shown[other]) }); // what is shown may not be in the URL
  }

  function submit(event) {
    event.preventDefault();
    const query = { text: text.value.trim(), not: without.value.trim() };
    if (query.text || query.not || shown.photo || shown.entry || shown.like.length) change(query);
    else statusLine.say("Enter a text, choose an image, or both.");
  }

  function leave() {
    if (text.value.trim() || without.value.trim() || shown.like.length) change({ photo: undefined, entry: undefined });
    else set(only(beginning()));
    text.focus();
  }

  function beginning() {
    if (index.example) return { entry: String(index.example.entry), text: index.example.text };
    return index.suggestions.length ? { text: index.suggestions[0] } : { entry: String(index.entries[0] ?? 0) };
  }

  const exampleList = (kind, entries) => el("div", { class: `row ${kind}` }, el("span", { class: "hint" }, EXAMPLES[kind]),
    entries.map((entry) => el("button", {
      type: "button", class: "tile", title: "Remove", "aria-label": `Remove image ${entry} from ${EXAMPLES[kind].toLowerCase()}`,
      onclick: () => mark(kind, entry, false),
    }, el("img", { src: entryPicture(entry, 96), alt: "" }))));

  function fill(query) {
    [text.value, without.value] = [query.text ?? "", query.not ?? ""];
    methods.value = query.method ?? "auto";
    filters.forEach(({ key, select }) => (select.value = query[key] ?? ""));
    const [image, words] = [Boolean(query.photo || query.entry), Boolean(query.text || query.not)];
    given.replaceChildren(...(image ? [pictureOf(query),
      el("button", { type: "button", class: "small", onclick: leave }, "Remove image")].filter(Boolean) : []));
    examples.replaceChildren(...Object.keys(EXAMPLES).filter((kind) => query[kind].length)
      .map((kind) => exampleList(kind, query[kind])));
    for (const option of methods.options) {
      const method = index.methods.find(({ name }) => name === option.value);
      option.disabled = Boolean(method) && (method.image !== image || method.text !== words);
    }
    balance.hidden = !(image && words && ["weicom", undefined].includes(query.method));
    auto.hidden = !query.weight;
    if (!held) weight.set(query.weight ?? 0.5);
    map.show(query.region);
    aboutMethod.textContent = index.methods.find(({ name }) => name === query.method)?.about ?? AUTO;
  }

  async function answer(query) {
    errorArea.replaceChildren();
    table.hidden = true;
    takes.clear();
    statusLine.say("Searching …", true);
    if (!results.firstChild) results.append(placeholders(TOP / 2));
    results.setAttribute("aria-busy", "true");
    try {
      await latest.run(async (own) => {
        const [parameters, options] = [{ ...query, top: TOP }, { signal: own, waiting: (why) => statusLine.say(why, true) }];
        if (query.entry && !isEntry(query.entry)) throw new Failure("The index does not contain this image.", 404);
        const response = await (query.photo
          ? requestPhoto(query.photo, "/api/search", parameters, options)
          : request("/api/search", parameters, options));
        if (own.aborted) return;
        results.replaceChildren(resultGrid(response, query, {
          from: (entry) => (set(only({ entry })), scrollTo({ top: 0 })),
          add: (entry) => (set(only({ entry, text: query.text })), text.focus(), text.select()),
          like: (entry) => mark("like", entry),
          unlike: (entry) => mark("unlike", entry),
          look: about.models.length ? (photo) => go(`/look?photo=${encodeURIComponent(photo)}`) : null,
        }));
        statusLine.say(summary(response));
        map.mark(response.results.map(({ entry }) => entry));
        table.href = address("/api/search.csv", parameters);
        table.hidden = !response.results.length;
        const { text: said = 0, image: seen = 0 } = response.why?.shares ?? {};
        const share = response.why?.weight ?? said / (said + seen);
        if (!held && Number.isFinite(share)) weight.set(share);
      });
    } catch (error) {
      if (cancelled(error) || query !== shown) return; // there is a newer query
      statusLine.say("");
      results.replaceChildren();
      errorArea.replaceChildren(errorBox(error, () => answer(query)));
    }
    results.removeAttribute("aria-busy");
  }

  return {
    show(parameters) {
      let query = Object.fromEntries(NAMES.map((name) => [name, EXAMPLES[name]
        ? parameters.getAll(name).filter(isEntry).slice(0, MOST) : meant(name, parameters.get(name))]));
      query.region = regionOf(parameters.getAll("region"));
      // Without a query, show the results of a suggestion.
      chosen = Boolean(query.photo || query.entry || query.text || query.not || query.like.length);
      if (!chosen) query = { ...query, ...beginning() };
      if (JSON.stringify(query) === JSON.stringify(shown)) return;
      shown = query;
      fill(query);
      answer(query);
    },
  };
}

const isEntry = (entry) => /^[0-9]{1,19}$/.test(entry);

// Corners x,y of a polygon on the map, from 0 to 1 with at most four decimals.
const CORNER = /^(0(\.\d{1,4})?|1(\.0{1,4})?),(0(\.\d{1,4})?|1(\.0{1,4})?)$/;

function regionOf(values) {
  if (values.length < 3 || values.length > MAX_CORNERS || !values.every((value) => CORNER.test(value))) return undefined;
  return values.map((value) => value.split(",").map(Number));
}

// Ignore invalid parameters of the URL.
function meant(name, value) {
  if (!value || (name === "weight" && !(value >= 0 && value <= 1))) return undefined;
  return value.slice(0, name === "method" ? 100 : 500);
}

function pictureOf({ photo, entry }) {
  if (photo ? !isPhoto(photo) : !isEntry(entry)) return null;
  const image = el("img", photo ? { src: picture(photo, 240), alt: "Your photograph" }
    : { src: entryPicture(entry, 240), alt: `Image ${entry} of the index` });
  return patient(image, () => image.remove());
}

function summary({ results, searched, method, seconds, exact }) {
  if (!searched) return "No image matches the filters.";
  if (!results.length) return "No results.";
  return `Top ${results.length} of ${counted(searched, "image")}, method ${method}, ${seconds.toFixed(2)} s` +
    `${exact ? "" : ", approximate"}.`;
}

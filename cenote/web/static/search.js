// Search: by image, by text, by both; from every result on.
import { Failure, Latest, ask, cancelled } from "./ask.js";
import { answerOf, placeholders } from "./answer.js";
import { choice, counted, el, field, hero, slider, status, trouble } from "./dom.js";
import { askAbout, entryPicture, isPhoto, patient, picker, picture } from "./photos.js";

export const title = "Search";
const TOP = 24;
const NAMES = ["photo", "entry", "text", "not", "weight", "method", "class", "domain"];
const AUTO = "Auto: by text, by image, or the best way to do both that this index allows.";

export function enter(main, { about, signal, set, go }) {
  const { index } = about;
  if (!index) {
    main.append(hero("Search", "No index is served here. ", el("code", {}, "cenote index"),
      " makes a folder of images searchable, and ", el("code", {}, "cenote serve RUN --index INDEX"), " shows it."));
    return { show() {} };
  }
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  let shown = null;
  let held = false; // the slider of the weight

  const words = (placeholder) =>
    el("input", { type: "search", placeholder, autocomplete: "off", enterKeyHint: "search" });
  const [text, without] = [words("a dog, a sketch, at night …"), words("nothing")];
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
  const weight = slider("More image, or more text?", {
    value: 0.5, step: 0.05, words: (value) => (held || shown?.weight ? `${Math.round(100 * value)}% text` : "auto"),
    input: () => (held = true),
    change: (value) => ((held = false), set({ weight: value, method: undefined }, { replace: true })),
  });
  const ends = el("div", { class: "row ends", "aria-hidden": "true" }, el("span", {}, "image"), el("span", {}, "text"));
  const balance = el("div", { class: "balance", hidden: true }, weight, ends, auto);
  const form = el("form", { class: "query", role: "search", onsubmit: submit },
    el("div", { class: "ask" }, el("div", { class: "image" }, given, takes),
      el("div", { class: "words" }, field("Text", text), field("but not", without),
        el("button", { type: "submit", class: "main" }, "Search"))),
    balance,
    el("details", { class: "more" }, el("summary", {}, "Method and filters"),
      el("div", { class: "row" }, field("Method", methods), filters.map(({ element }) => element)), aboutMethod));
  const hints = el("div", { class: "hints", role: "group", "aria-label": "To begin with" },
    index.suggestions.map((one) =>
      el("button", { type: "button", class: "chip", onclick: () => set(only({ text: one })) }, one)),
    index.entries.slice(0, 12).map((entry) => el("button", {
      type: "button", class: "tile", "aria-label": `Like image ${entry}`, title: "More like this",
      onclick: () => set(only({ entry })),
    }, el("img", { src: entryPicture(entry, 96), alt: "", loading: "lazy" }))));
  const said = status();
  const fault = el("div");
  const results = el("div", { class: "answer" });
  main.append(
    hero("Search by image, by text, by both",
      `Among ${counted(index.images, "image")}, with ${index.model.split("/").pop()}. An image and a text together ` +
      "mean: like this one, but as the text says."),
    form, hints, said, fault, results);

  // A new question, and nothing left of the old one.
  const only = (parameters) => ({ ...Object.fromEntries(NAMES.map((name) => [name, undefined])), ...parameters });

  // A method or a weight that does not take what is asked from now on is let go.
  function change(parameters) {
    const wanted = { ...shown, ...parameters };
    const method = index.methods.find(({ name }) => name === wanted.method);
    const [image, words] = [Boolean(wanted.photo || wanted.entry), Boolean(wanted.text || wanted.not)];
    const fits = method ? method.image === image && method.text === words : !wanted.method; // a name may be nobody's
    set({ ...parameters, ...(fits ? {} : { method: undefined }), ...(image && words ? {} : { weight: undefined }) });
  }

  function submit(event) {
    event.preventDefault();
    const wanted = { text: text.value.trim(), not: without.value.trim() };
    if (wanted.text || wanted.not || shown.photo || shown.entry) change(wanted);
    else said.say("Give an image, a text or both.");
  }

  function leave() {
    if (text.value.trim() || without.value.trim()) change({ photo: undefined, entry: undefined });
    else set(only(beginning()));
    text.focus();
  }

  const beginning = () =>
    (index.suggestions.length ? { text: index.suggestions[0] } : { entry: String(index.entries[0] ?? 0) });

  function fill(wanted) {
    [text.value, without.value] = [wanted.text ?? "", wanted.not ?? ""];
    methods.value = wanted.method ?? "auto";
    filters.forEach(({ key, select }) => (select.value = wanted[key] ?? ""));
    const [image, words] = [Boolean(wanted.photo || wanted.entry), Boolean(wanted.text || wanted.not)];
    given.replaceChildren(...(image ? [pictureOf(wanted),
      el("button", { type: "button", class: "small", onclick: leave }, "Without image")].filter(Boolean) : []));
    for (const option of methods.options) {
      const method = index.methods.find(({ name }) => name === option.value);
      option.disabled = Boolean(method) && (method.image !== image || method.text !== words);
    }
    balance.hidden = !(image && words && ["weicom", undefined].includes(wanted.method));
    auto.hidden = !wanted.weight;
    weight.set(wanted.weight ?? 0.5);
    aboutMethod.textContent = index.methods.find(({ name }) => name === wanted.method)?.about ?? AUTO;
  }

  async function answer(wanted) {
    fault.replaceChildren();
    takes.clear();
    said.say("Searching …", true);
    if (!results.firstChild) results.append(placeholders(TOP / 2));
    results.setAttribute("aria-busy", "true");
    try {
      await latest.run(async (own) => {
        const [parameters, options] = [{ ...wanted, top: TOP }, { signal: own, waiting: (why) => said.say(why, true) }];
        if (wanted.entry && !isEntry(wanted.entry)) throw new Failure("There is no such image in the index.", 404);
        const found = await (wanted.photo
          ? askAbout(wanted.photo, "/api/search", parameters, options)
          : ask("/api/search", parameters, options));
        if (own.aborted) return;
        results.replaceChildren(answerOf(found, wanted, {
          from: (entry) => (set(only({ entry })), scrollTo({ top: 0 })),
          add: (entry) => (set(only({ entry, text: wanted.text })), text.focus(), text.select()),
          look: about.models.length ? (photo) => go(`/look?photo=${encodeURIComponent(photo)}`) : null,
        }));
        said.say(summary(found));
        if (!held && typeof found.why?.weight === "number") weight.set(found.why.weight);
      });
    } catch (error) {
      if (cancelled(error) || wanted !== shown) return; // a newer question has been asked
      said.say("");
      results.replaceChildren();
      fault.replaceChildren(trouble(error, () => answer(wanted)));
    }
    results.removeAttribute("aria-busy");
  }

  return {
    show(parameters) {
      let wanted = Object.fromEntries(NAMES.map((name) => [name, meant(name, parameters.get(name))]));
      // With nothing asked yet, a first question is already answered.
      if (!wanted.photo && !wanted.entry && !wanted.text && !wanted.not) wanted = { ...wanted, ...beginning() };
      if (JSON.stringify(wanted) === JSON.stringify(shown)) return;
      shown = wanted;
      fill(wanted);
      answer(wanted);
    },
  };
}

const isEntry = (entry) => /^[0-9]{1,19}$/.test(entry);

// What an address cannot mean is as if it were not there.
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
  if (!searched) return "No image passes the filters.";
  if (!results.length) return "Nothing was found.";
  return `The best ${results.length} of ${counted(searched, "image")}, by ${method}, in ${seconds.toFixed(2)} s` +
    `${exact ? "" : ", ranked among the nearest"}.`;
}

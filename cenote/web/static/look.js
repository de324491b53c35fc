// Look: where a model looks in one photograph, what it takes it for, and the box that follows from it.
import { Latest, cancelled } from "./ask.js";
import { choice, el, field, hero, percent, slider, status, toggle, trouble } from "./dom.js";
import { sideBySide } from "./looks.js";
import { highest } from "./maps.js";
import { VIEW, beginning, boxesOf, draw, fit, isStretched, isWhole } from "./overlay.js";
import { patches } from "./patches.js";
import { askAbout, loadPhoto, picker } from "./photos.js";
import { strip } from "./strip.js";

export const title = "Look";
const LONGER = 960;
const KINDS = {
  auto: "the model's best", pool: "the pool's own", cam: "class activation", cls: "attention of CLS",
  rollout: "attention rollout", gradcam: "Grad-CAM",
};
const STYLES = [["heat", "Heat"], ["light", "Light"], ["off", "None"]];
const kept = { ...VIEW }; // how it is drawn outlives the room

export function enter(main, { about, signal, set, go }) {
  if (!about.models.length) {
    main.append(hero("Look", "No model is served here. ", el("code", {}, "cenote serve RUN"),
      " with a trained model or a tournament shows where it looks."));
    return { show() {} };
  }
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  const view = { ...kept, threshold: null, patch: null };
  let [shown, image, look] = [null, null, null];
  let held = false; // the threshold's slider: an answer that comes meanwhile does not move it

  const canvas = el("canvas", { role: "img", width: 4, height: 3, "aria-label": "The photograph" });
  const reading = el("p", { class: "reading", role: "status" });
  const stage = el("div", {
    class: "stage", tabIndex: 0, role: "application", "aria-roledescription": "map",
    "aria-label": "The map, patch by patch: arrow keys move, Escape leaves the patches",
  }, canvas);
  const cells = patches(stage, canvas, reading, (patch) => ((view.patch = patch), redraw()));
  const said = status();
  const fault = el("div");
  const another = (changes) => set({ threshold: undefined, ...changes });
  const examples = strip(about.examples, (photo) => another({ photo }),
    picker({ limits: about.limits, signal, taken: ({ photo }) => another({ photo }) }));
  const beside = sideBySide(about.models, view, signal, (model) => {
    another({ model, map: undefined });
    stage.scrollIntoView({ block: "nearest" });
  });

  // The panel: what the model says, and how it is drawn.
  const redrawAll = () => (redraw(), beside.redraw());
  const models = choice(about.models.map(({ id, name, recommended }) => [id, recommended ? `${name} ★` : name]), null,
    (model) => another({ model, map: undefined }));
  const kinds = choice([], null, (kind) => another({ map: kind === "auto" ? undefined : kind }));
  const mapField = field("Map", kinds);
  const aboutModel = el("p", { class: "hint" });
  const classes = el("ol", { class: "classes", "aria-label": "What the model takes it for" });
  const styles = el("fieldset", { class: "segments" }, el("legend", {}, "Overlay"), STYLES.map(([value, name]) =>
    el("label", {}, el("input", {
      type: "radio", name: "style", value, checked: view.style === value,
      onchange: () => ((view.style = kept.style = value), redrawAll()),
    }), el("span", {}, name))));
  const opacity = slider("Opacity", {
    value: view.opacity, input: (value) => ((view.opacity = kept.opacity = value), redrawAll()),
  });
  const threshold = slider("Threshold", {
    value: 0.1, max: 0.99, words: (value) => value.toFixed(2),
    input: (value) => ((held = true), (view.threshold = value), redraw()),
    change: (value) => ((held = false), set({ threshold: value }, { replace: true })),
  });
  const source = el("p", { class: "hint" });
  const reset = el("button", { type: "button", class: "small", onclick: () => another({}) }, "Back to its own");
  const switches = [["mask", "Outline"], ["box", "Box"]].map(([what, name]) =>
    toggle(name, view[what], (on) => ((view[what] = kept[what] = on), redrawAll())));
  const act = (name, onclick) => el("button", { type: "button", onclick }, name);
  const panel = el("section", { class: "panel", "aria-label": "What the model says" },
    field("Model", models), aboutModel, mapField, classes, styles, opacity, threshold,
    el("div", { class: "row" }, source, reset), el("div", { class: "row" }, switches),
    el("div", { class: "row actions" }, act("Download picture", download), act("Copy address", copy),
      about.index && act("Search with it", () => go(`/search?photo=${encodeURIComponent(shown.photo)}`))));
  const body = el("div", { class: "look" },
    el("figure", {}, stage, el("figcaption", {}, reading, said)), panel);
  main.append(
    hero("Where does it look?", "One photograph, one model: what it takes it for, how much every patch counted, and " +
      "the box that follows, learned without box labels."),
    examples, fault, body, beside.element);

  function redraw() {
    if (image) draw(canvas, image, look, view);
  }

  function tell() {
    classes.replaceChildren(...look.classes.map(({ name, probability }) => {
      const bar = el("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", probability);
      return el("li", {}, el("span", { class: "name", title: name }, name), bar,
        el("span", { class: "number" }, percent(probability, 1)));
    }));
    if (!look.classes.length) classes.append(el("li", { class: "hint" }, "This model names no classes."));
    if (!held) threshold.set(shown.threshold ?? beginning(look));
    source.textContent = sourceOf(look.threshold) +
      (boxesOf(look, view).some(isWhole) ? " The box is the whole picture: a higher threshold shrinks it." : "");
    reset.hidden = shown.threshold === null;
    cells.of(look.map);
    const name = about.examples.find(({ photo }) => photo === shown.photo)?.name || "Your photograph";
    const best = look.classes[0] ? ` ${look.classes[0].name}, ${percent(look.classes[0].probability)}.` : "";
    const [row, column] = highest(look.map);
    canvas.setAttribute("aria-label", `${name}.${best} Most weight in row ${row + 1} of ${look.map.rows}, ` +
      `column ${column + 1} of ${look.map.columns}.`);
    const time = look.seconds < 0.0005 ? "Known already" : `Looked in ${look.seconds.toFixed(2)} s`;
    said.say(`${time}; ${KINDS[look.map.kind] ?? look.map.kind} map.` +
      (isStretched(look) ? ` ${look.width} × ${look.height} pixels, shown stretched.` : ""));
  }

  function sourceOf({ value, source: told, default: guessed }) {
    if (shown.threshold !== null) return "As you chose it.";
    if (!guessed) return `Its own threshold: ${told}.`;
    const begun = beginning(look);
    return `Not calibrated: ${told}.` + (begun === value ? "" :
      ` At that, ${value.toFixed(2)}, the box is the whole picture; so it begins at ${begun.toFixed(2)}.`);
  }

  function download() {
    if (!image) return;
    canvas.toBlob((blob) => {
      const link = el("a", { href: URL.createObjectURL(blob), download: "cenote-look.png" });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    });
  }

  async function copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      said.say("The address of this view is copied.");
    } catch {
      said.say(`The address of this view: ${location.href}`);
    }
  }

  // The photograph is there before the answer is.
  async function photograph(photo, own) {
    const loaded = await loadPhoto(photo, LONGER);
    if (!own.aborted && image !== loaded) {
      [image, look, view.patch] = [loaded, null, null];
      cells.of(null);
      classes.replaceChildren();  // of the photograph before
      source.textContent = "";
      body.hidden = false;
      fit(canvas, image, LONGER);
      redraw();
    }
  }

  async function answer(wanted) {
    fault.replaceChildren();
    said.say("Looking …", true);
    try {
      await latest.run(async (own) => {
        const waiting = (why) => said.say(why, true);
        const [found] = await Promise.all([
          askAbout(wanted.photo, "/api/look", wanted, { signal: own, waiting }), photograph(wanted.photo, own),
        ]);
        if (own.aborted) return;
        look = found;
        view.patch = null;
        if (!held) view.threshold = wanted.threshold;
        redraw();
        tell();
      });
    } catch (error) {
      if (cancelled(error) || wanted !== shown) return;
      said.say("");
      fault.replaceChildren(trouble(error, () => answer(wanted)));
      if (error.code === 404) empty();
    }
  }

  // Nothing of another photograph stays beside the sentence that this one is gone.
  function empty() {
    [image, look] = [null, null];
    body.hidden = true;
    beside.show(null);
  }

  function describe({ pool, backbone, classes: known, accuracy, recommended }) {
    const parts = [`${pool} on ${backbone}`];
    if (known) parts.push(`knows ${known} classes and nothing else`);
    if (accuracy !== null) parts.push(`${accuracy.toFixed(1)}% right on images it was judged on`);
    if (recommended) parts.push("recommended by the tournament");
    return parts.join(", ");
  }

  return {
    show(parameters) {
      const model = about.models.find(({ id }) => id === parameters.get("model")) ?? about.models[0];
      const photo = parameters.get("photo") ?? about.examples[0]?.photo;
      // What an address cannot mean is as if it were not there.
      const map = model.maps.includes(parameters.get("map")) ? parameters.get("map") : "auto";
      const given = parameters.get("threshold") ? Number(parameters.get("threshold")) : NaN;
      const threshold = given >= 0 && given < 1 ? given : null;
      models.value = model.id;
      aboutModel.textContent = describe(model);
      const offered = ["auto", ...model.maps];
      kinds.replaceChildren(...offered.map((kind) => el("option", { value: kind }, KINDS[kind] ?? kind)));
      kinds.value = map;
      mapField.hidden = model.maps.length < 2;
      examples.choose(photo);
      if (!photo) return said.say("Choose a photograph to begin with.");
      const wanted = { photo, model: model.id, map, threshold };
      if (JSON.stringify(wanted) === JSON.stringify(shown)) return;
      shown = wanted;
      beside.show(photo, model.id);
      answer(wanted);
    },
  };
}

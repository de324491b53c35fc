// Look: the predicted classes, the attention map and the box of one photograph.
import { Latest, cancelled } from "./api.js";
import { bestClass, choice, el, field, hero, percent, slider, status, toggle, errorBox } from "./dom.js";
import { allModels } from "./all_models.js";
import { batch } from "./batch.js";
import { highest } from "./maps.js";
import { VIEW, startThreshold, boxesOf, draw, fit, isStretched, isWhole } from "./overlay.js";
import { patches } from "./patches.js";
import { requestPhoto, loadPhoto, picker } from "./photos.js";
import { exampleStrip } from "./examples.js";

export const title = "Look";
const LONGER = 960;
const KINDS = {
  auto: "default", object: "object map", pool: "pool attention", cam: "class activation", cls: "CLS attention",
  rollout: "attention rollout", gradcam: "Grad-CAM",
};
const STYLES = [["heat", "Heat"], ["light", "Light"], ["off", "None"]];
const kept = { ...VIEW }; // display options outlive the view

export function enter(main, { about, signal, set, go }) {
  if (!about.models.length) {
    main.append(hero("Look", "No model is served here. ", el("code", {}, "cenote serve RUN"),
      " with a trained model or a tournament shows attention maps."));
    return { show() {} };
  }
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  const view = { ...kept, threshold: null, patch: null };
  let [shown, image, look] = [null, null, null];
  let held = false; // the threshold's slider is being moved: a response must not move it

  const canvas = el("canvas", { role: "img", width: 4, height: 3, "aria-label": "The photograph" });
  const reading = el("p", { class: "reading", role: "status" });
  const stage = el("div", {
    class: "stage", tabIndex: 0, role: "application", "aria-roledescription": "map",
    "aria-label": "Attention map: arrow keys move between patches, Escape deselects",
  }, canvas);
  const cells = patches(stage, canvas, reading, (patch) => ((view.patch = patch), redraw()));
  const statusLine = status();
  const errorArea = el("div");
  const another = (changes) => set({ threshold: undefined, ...changes });
  const examples = exampleStrip(about.examples, (photo) => another({ photo }),
    picker({
      limits: about.limits, signal, label: "Your photographs", taken: ({ photo }) => another({ photo }),
      several: (files) => several.start(files, { model: models.value, map: kinds.value }),
    }));
  const several = batch({
    limits: about.limits, signal,
    choose: (photo) => (another({ photo }), stage.scrollIntoView({ block: "nearest" })),
  });
  const beside = allModels(about.models, view, signal, ({ id, maps }) => {
    another({ model: id, map: maps[0] });
    stage.scrollIntoView({ block: "nearest" });
  });

  // The panel: the prediction, and display options.
  const redrawAll = () => (redraw(), beside.redraw());
  const models = choice(about.models.map(({ id, name, recommended }) => [id, recommended ? `${name} ★` : name]), null,
    (model) => another({ model, map: undefined }));
  const kinds = choice([], null, (kind) => another({ map: kind === "auto" ? undefined : kind }));
  const mapField = field("Map", kinds);
  const aboutModel = el("p", { class: "hint" });
  const classes = el("ol", { class: "classes", "aria-label": "Predicted classes" });
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
  const reset = el("button", { type: "button", class: "small", onclick: () => another({}) }, "Reset threshold");
  const switches = [["mask", "Outline"], ["box", "Box"]].map(([what, name]) =>
    toggle(name, view[what], (on) => ((view[what] = kept[what] = on), redrawAll())));
  const act = (name, onclick) => el("button", { type: "button", onclick }, name);
  const panel = el("section", { class: "panel", "aria-label": "Prediction" },
    field("Model", models), aboutModel, mapField, classes, styles, opacity, threshold,
    el("div", { class: "row" }, source, reset), el("div", { class: "row" }, switches),
    el("div", { class: "row actions" }, act("Download picture", download), act("Copy link", copy),
      about.index && act("Search with this image", () => go(`/search?photo=${encodeURIComponent(shown.photo)}`))));
  const body = el("div", { class: "look" },
    el("figure", {}, stage, el("figcaption", {}, reading, statusLine)), panel);
  main.append(
    hero("Where does the model look?", "One photograph, one model: the predicted classes, a box around the object, made " +
      "without box labels, and, under Map, what the model attends to."),
    examples, several, errorArea, body, beside.element);

  function redraw() {
    if (image) draw(canvas, image, look, view);
  }

  function showText() {
    classes.replaceChildren(...look.classes.map(({ name, probability }) => {
      const bar = el("span", { class: "bar", "aria-hidden": "true" });
      bar.style.setProperty("--share", probability);
      return el("li", {}, el("span", { class: "name", title: name }, name), bar,
        el("span", { class: "number" }, percent(probability, 1)));
    }));
    if (look.unlike_training) classes.append(el("li", { class: "hint" }, "Unlike the training images: the class means little."));
    if (!look.classes.length) classes.append(el("li", { class: "hint" }, "This model has no classifier."));
    if (!held) threshold.set(shown.threshold ?? startThreshold(look));
    source.textContent = sourceOf(look.threshold) +
      (look.boxes.length ? "" : " No object stands out: the map is constant.") +
      (boxesOf(look, view).some(isWhole) ? " The box covers the whole image: a higher threshold makes it smaller." : "");
    reset.hidden = shown.threshold === null;
    if (shown.map === "auto") kinds.options[0].textContent = `${KINDS[look.map.kind] ?? look.map.kind} (default)`;
    cells.of(look.map);
    const name = about.examples.find(({ photo }) => photo === shown.photo)?.name || "Your photograph";
    const best = look.classes[0] ? ` ${bestClass(look)}.` : "";
    const [row, column] = highest(look.map);
    canvas.setAttribute("aria-label", `${name}.${best} Highest weight in row ${row + 1} of ${look.map.rows}, ` +
      `column ${column + 1} of ${look.map.columns}.`);
    const time = look.seconds < 0.0005 ? "Cached" : `Computed in ${look.seconds.toFixed(2)} s`;
    statusLine.say(`${time}; ${look.map.description || `${KINDS[look.map.kind] ?? look.map.kind} map`}.` +
      (isStretched(look) ? ` ${look.width} × ${look.height} pixels, shown stretched.` : ""));
  }

  function sourceOf({ value, source: description, default: isDefault }) {
    if (shown.threshold !== null) return "Set by you.";
    if (!isDefault) return `Calibrated: ${description}.`;
    const start = startThreshold(look);
    return `Threshold: ${description}.` + (start === value ? "" :
      ` At ${value.toFixed(2)} the box covers the whole image, so the slider starts at ${start.toFixed(2)}.`);
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
      statusLine.say("Link copied.");
    } catch {
      statusLine.say(`Link to this view: ${location.href}`);
    }
  }

  // Show the photograph before the response arrives.
  async function photograph(photo, own) {
    const loaded = await loadPhoto(photo, LONGER);
    if (!own.aborted && image !== loaded) {
      [image, look, view.patch] = [loaded, null, null];
      cells.of(null);
      classes.replaceChildren();  // of the previous photograph
      source.textContent = "";
      body.hidden = false;
      fit(canvas, image, LONGER);
      redraw();
    }
  }

  async function answer(query) {
    errorArea.replaceChildren();
    statusLine.say("Computing …", true);
    try {
      await latest.run(async (own) => {
        const waiting = (why) => statusLine.say(why, true);
        const [response] = await Promise.all([
          requestPhoto(query.photo, "/api/look", query, { signal: own, waiting }), photograph(query.photo, own),
        ]);
        if (own.aborted) return;
        look = response;
        view.patch = null;
        if (!held) view.threshold = query.threshold;
        redraw();
        showText();
      });
    } catch (error) {
      if (cancelled(error) || query !== shown) return;
      statusLine.say("");
      errorArea.replaceChildren(errorBox(error, () => answer(query)));
      if (error.code === 404) empty();
    }
  }

  // Remove the previous photograph when this one does not exist.
  function empty() {
    [image, look] = [null, null];
    body.hidden = true;
    beside.show(null);
  }

  function describe({ pool, backbone, classes: count, accuracy, evaluated_on: images, recommended }) {
    const parts = [`${pool} on ${backbone}`];
    if (count) parts.push(`${count} classes`);
    if (accuracy !== null) parts.push(`${accuracy.toFixed(1)}% accuracy on ${images}`);
    if (recommended) parts.push("recommended by the tournament");
    return parts.join(", ");
  }

  return {
    show(parameters) {
      const model = about.models.find(({ id }) => id === parameters.get("model")) ?? about.models[0];
      const photo = parameters.get("photo") ?? about.examples[0]?.photo;
      // Ignore invalid parameters of the URL.
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
      if (!photo) return statusLine.say("Choose a photograph.");
      const query = { photo, model: model.id, map, threshold };
      if (JSON.stringify(query) === JSON.stringify(shown)) return;
      shown = query;
      beside.show(photo, model.id);
      answer(query);
    },
  };
}

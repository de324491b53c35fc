// Compare: the maps of two models on the same photographs, and their agreement.
import { TaskQueue, cancelled } from "./api.js";
import { bestClass, choice, counted, el, field, hero, percent, slider, status, errorBox } from "./dom.js";
import { agreement } from "./maps.js";
import { VIEW, draw, fit } from "./overlay.js";
import { pairOf } from "./pair.js";
import { requestPhoto, loadPhoto, picker } from "./photos.js";
import { exampleStrip } from "./examples.js";

export const title = "Compare";
const [LARGE, SMALL] = [960, 320];

export function enter(main, { about, signal, set, go }) {
  if (about.models.length < 2) {
    const lack = about.models.length ? "Only one model is served here. " : "No model is served here. ";
    main.append(hero("Compare", lack, el("code", {}, "cenote serve RUN RUN"),
      " with two models, or with a tournament, compares their maps."));
    return { show() {} };
  }
  const view = { ...VIEW };
  const answers = new Map(); // model and photograph -> response
  let round = null; // requests for the pair that is shown
  let [pair, photo, wiped, wipe, rows] = [[], null, null, 0.5, []];
  signal.addEventListener("abort", () => round?.stop());
  const modelOf = (id) => about.models.find((model) => model.id === id);
  const name = (id) => modelOf(id).name;
  const ownMap = (id) => modelOf(id).maps[0] ?? "auto"; // the object map does not depend on the pool

  const sides = ["a", "b"].map((side) =>
    choice(about.models.map((model) => [model.id, model.name]), null, (id) => set({ [side]: id })));
  const swap = el("button", {
    type: "button", class: "small", title: "Swap left and right", "aria-label": "Swap",
    onclick: () => set({ a: pair[1], b: pair[0] }),
  }, "⇄");
  const canvas = el("canvas", { role: "img", width: 4, height: 3, "aria-label": "The photograph" });
  const stage = el("div", { class: "stage wipe" }, canvas);
  const knob = slider("Divider", {
    value: wipe, step: 0.005, words: (value) => `${percent(value)} left`, input: (value) => ((wipe = value), paint()),
  });
  const opacity = slider("Opacity", {
    value: view.opacity, input: (value) => ((view.opacity = value), paint(), rows.forEach((row) => row.paint())),
  });
  const share = el("p", { class: "agreement" });
  const verdicts = el("dl", { class: "verdicts" });
  const agreed = el("div", { role: "status" }, share,
    el("p", { class: "hint" }, "agreement of the two maps"), verdicts);
  const statusLine = status();
  const errorArea = el("div");
  const summary = el("p", { role: "status" });
  const body = el("div", { class: "pairs" });
  const examples = exampleStrip(about.examples, (chosen) => set({ photo: chosen }),
    picker({ limits: about.limits, signal, taken: ({ photo: chosen }) => set({ photo: chosen }) }));
  const panel = el("section", { class: "panel", "aria-label": "The two models" },
    el("div", { class: "versus" }, field("Left", sides[0]), swap, field("Right", sides[1])), agreed, knob, opacity);
  const figure = el("figure", {}, stage, el("figcaption", {}, statusLine));
  main.append(
    hero("Two models, the same photographs", "Agreement is the overlap of the two maps, the sum of the minimum of " +
      "their weights: 100% for equal maps, 0% for maps without common patches."),
    examples, errorArea,
    el("div", { class: "look" }, figure, panel),
    el("h2", {}, "All photographs"), summary, body);

  // Request a model and a photograph once. Pending requests are cancelled with the pair.
  function requestLook(model, which, now) {
    const key = `${model} ${which}`;
    if (answers.has(key)) return Promise.resolve(answers.get(key));
    const waiting = (why) => statusLine.say(why, true);
    const question = () => requestPhoto(which, "/api/look", { photo: which, model, map: ownMap(model) }, { signal: now.signal, waiting });
    now.asked[key] ??= now.line.add(question, now.signal).then((look) => (answers.set(key, look), look));
    return now.asked[key];
  }

  const both = (which, size, now) =>
    Promise.all([loadPhoto(which, size), ...pair.map((model) => requestLook(model, which, now))]);

  function paint() {
    if (!wiped) return;
    const [image, left, right] = wiped;
    draw(canvas, image, left, view, { from: 0, to: wipe });
    draw(canvas, image, right, view, { from: wipe, to: 1, clear: false });
    const pen = canvas.getContext("2d");
    for (const [colour, width] of [["rgba(0, 0, 0, 0.6)", 6], ["#ffffff", 3]]) {
      pen.fillStyle = colour;
      pen.fillRect(wipe * canvas.width - width / 2, 0, width, canvas.height);
    }
  }

  function drag(event) {
    if (event.type === "pointermove" && !event.buttons) return;
    const area = canvas.getBoundingClientRect();
    wipe = Math.min(Math.max((event.clientX - area.left) / area.width, 0), 1);
    knob.set(wipe);
    paint();
  }
  stage.addEventListener("pointerdown", (event) => (stage.setPointerCapture(event.pointerId), drag(event)));
  stage.addEventListener("pointermove", drag);

  async function large() {
    const [which, now] = [photo, round];
    statusLine.say("Computing …", true);
    errorArea.replaceChildren();
    try {
      const content = await both(which, LARGE, now);
      if (now.signal.aborted || which !== photo) return;
      wiped = content;
      for (const part of [figure, agreed, knob]) part.hidden = false;
      fit(canvas, content[0], LARGE);
      paint();
      share.textContent = percent(agreement(content[1].map, content[2].map));
      verdicts.replaceChildren(...pair.map((model, i) => el("div", {},
        el("dt", {}, `${i ? "Right" : "Left"}, ${name(model)}`), el("dd", {}, bestClass(content[i + 1])))));
      canvas.setAttribute("aria-label", `The maps of ${name(pair[0])} and ${name(pair[1])} on one photograph`);
      statusLine.say("");
    } catch (error) {
      if (cancelled(error) || which !== photo) return;
      wiped = null;
      for (const part of [figure, agreed, knob]) part.hidden = true; // of the previous photograph
      statusLine.say("");
      errorArea.replaceChildren(errorBox(error, begin));
    }
  }

  function begin() {
    round?.stop();
    const controller = new AbortController();
    const now = { signal: controller.signal, stop: () => controller.abort(), line: new TaskQueue(2), asked: {} };
    round = now;
    large();
    const look = (which) => (model) => go(`/look?${new URLSearchParams({ photo: which, model, map: ownMap(model) })}`);
    rows = examples.photos().map((which) =>
      pairOf(pair.map((model) => ({ model, name: name(model) })), view, SMALL, both(which, SMALL, now), look(which)));
    body.replaceChildren(...rows.map((row) => row.element));
    const done = [];
    summary.textContent = `0 of ${counted(rows.length, "photograph")} compared`;
    rows.forEach((row) => row.done.then((result) => {
      if (now.signal.aborted || !result) return;
      done.push(result);
      const mean = done.reduce((sum, { value }) => sum + value, 0) / done.length;
      const many = counted(rows.length, "photograph");
      summary.textContent = `${done.length < rows.length ? `${done.length} of ${many} compared:` : `On ${many}:`} ` +
        `agreement ${percent(mean)} on average, the same class ` +
        `${counted(done.filter(({ same }) => same).length, "time")}.`;
    }));
  }

  return {
    show(parameters) {
      const known = (id) => about.models.some((model) => model.id === id) && id;
      const a = known(parameters.get("a")) || about.models[0].id;
      const others = about.models.filter(({ id }) => id !== a);
      const poolOfA = about.models.find(({ id }) => id === a).pool;
      const b = known(parameters.get("b")) || (others.find(({ pool }) => pool !== poolOfA) ?? others[0]).id;
      const nextPhoto = parameters.get("photo") ?? about.examples[0]?.photo;
      sides.forEach((select, i) => (select.value = [a, b][i]));
      examples.choose(nextPhoto);
      if (!nextPhoto) return statusLine.say("Choose a photograph.");
      if (a === pair[0] && b === pair[1] && nextPhoto === photo) return;
      const other = a !== pair[0] || b !== pair[1] || rows.length !== examples.photos().length;
      [pair, photo] = [[a, b], nextPhoto];
      if (other) begin();
      else large();
    },
  };
}

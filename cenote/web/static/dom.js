// Elements are created without markup: what comes from the server is text, never HTML.

export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "data") Object.assign(element.dataset, value);
    else if (name in element && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The header of a view.
export function hero(heading, ...lead) {
  return el("div", { class: "hero" }, el("h1", {}, heading), el("p", { class: "lead" }, lead));
}

let numbers = 0;
export const fresh = (name) => `${name}-${++numbers}`;

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;

// The most probable class of an answer of /api/look.
export function bestClass({ classes: [best], unlike_training: unlike }) {
  if (!best) return "no classifier";
  return `${best.name}, ${percent(best.probability)}${unlike ? ", unlike the training images" : ""}`;
}

// "1 image", "2 images"
export const counted = (many, thing) => `${many.toLocaleString("en")} ${thing}${many === 1 ? "" : "s"}`;

// A label and its control; screen readers read `hint` with it.
export function field(label, control, hint) {
  control.id ||= fresh("field");
  const parts = [el("label", { htmlFor: control.id }, label), control];
  if (hint) {
    const about = el("span", { class: "hint", id: fresh("hint") }, hint);
    control.setAttribute("aria-describedby", about.id);
    parts.push(about);
  }
  return el("div", { class: "field" }, parts);
}

export function choice(options, value, onchange) {
  const select = el("select", { onchange: () => onchange(select.value) },
    options.map(([key, name]) => el("option", { value: key, selected: key === value }, name)));
  return select;
}

// A checkbox that looks like a switch.
export function toggle(name, checked, onchange) {
  const box = el("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return el("label", { class: "toggle" }, box, el("span", {}, name));
}

// A slider with its value as text: `input` is called while it moves, `change` when it is released.
export function slider(name, { value, min = 0, max = 1, step = 0.01, words = (v) => percent(v), input, change }) {
  const range = el("input", { type: "range", min, max, step, id: fresh("slider") });
  range.value = value;
  const shown = el("output", { htmlFor: range.id });
  const tell = () => {
    shown.textContent = words(Number(range.value));
    range.setAttribute("aria-valuetext", shown.textContent);
    range.style.setProperty("--filled", `${(100 * (range.value - min)) / (max - min)}%`);
  };
  range.addEventListener("input", () => (input?.(Number(range.value)), tell()));
  range.addEventListener("change", () => change?.(Number(range.value)));
  tell();
  const block = el("div", { class: "slider" }, el("label", { htmlFor: range.id }, name), shown, range);
  block.range = range;
  block.set = (v) => ((range.value = v), tell());
  return block;
}

// A line that screen readers read when it changes.
export function status() {
  const line = el("p", { class: "status", role: "status" });
  line.say = (sentence, busy = false) => {
    line.textContent = sentence;
    line.classList.toggle("busy", busy);
  };
  return line;
}

// An error message, with a button to try again.
export function errorBox(failure, again) {
  return el("div", { class: "trouble", role: "alert" }, el("p", {}, failure.message),
    again && failure.code !== 404 && el("button", { type: "button", onclick: again }, "Try again"));
}

// A dialog is an entry of the history, so that Back closes it. `go` replaces this entry.
export function openDialog(dialog) {
  history.pushState({ over: true }, "");
  dialog.addEventListener("close", () => history.state?.over && history.back());
  addEventListener("popstate", () => dialog.close(), { once: true });
  dialog.showModal();
}

// A roving tabindex: Tab stops once, arrow keys, Home and End move between the buttons.
export function roving(container, selector = "button") {
  const all = () => [...container.querySelectorAll(selector)];
  const hold = (one) => all().forEach((each) => (each.tabIndex = each === one ? 0 : -1));
  container.addEventListener("focusin", (event) => {
    const one = event.target.closest(selector);
    if (one) hold(one);
  });
  container.addEventListener("keydown", (event) => {
    const list = all();
    const at = list.indexOf(event.target.closest(selector));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: list.length - 1, ...lines(list, at) }[event.key];
    if (at < 0 || to === undefined || !list[to]) return;
    event.preventDefault();
    list[to].focus();
  });
  hold(all()[0]);
  return { hold };
}

// Up and down in a grid whose number of columns depends on the width.
function lines(list, at) {
  if (at < 0) return {};
  const columns = list.filter((each) => each.offsetTop === list[0].offsetTop).length;
  return { ArrowDown: Math.min(at + columns, list.length - 1), ArrowUp: Math.max(at - columns, 0) };
}

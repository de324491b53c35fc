// Elements without markup strings: what comes from a server is text, never HTML.

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

// The head of a room: its question, and what is to be seen.
export function hero(heading, ...lead) {
  return el("div", { class: "hero" }, el("h1", {}, heading), el("p", { class: "lead" }, lead));
}

let numbers = 0;
export const fresh = (name) => `${name}-${++numbers}`;

export const percent = (share, digits = 0) => `${(100 * share).toFixed(digits)}%`;

// "1 image", "2 images"
export const counted = (many, thing) => `${many.toLocaleString("en")} ${thing}${many === 1 ? "" : "s"}`;

// A label and its control; `hint` is read out with it.
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

// A switch that is a real checkbox.
export function toggle(name, checked, onchange) {
  const box = el("input", { type: "checkbox", checked, onchange: () => onchange(box.checked) });
  return el("label", { class: "toggle" }, box, el("span", {}, name));
}

// A slider that says its value in words: `input` while it moves, `change` when it is let go.
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

// A sentence that is read out when it changes.
export function status() {
  const line = el("p", { class: "status", role: "status" });
  line.say = (sentence, busy = false) => {
    line.textContent = sentence;
    line.classList.toggle("busy", busy);
  };
  return line;
}

// Why something could not be done, and the way on.
export function trouble(failure, again) {
  return el("div", { class: "trouble", role: "alert" }, el("p", {}, failure.message),
    again && failure.code !== 404 && el("button", { type: "button", onclick: again }, "Try again"));
}

// A dialog is a step of the history: Back closes it, and what lies beneath stays. `go` puts what follows in its place.
export function openDialog(dialog) {
  history.pushState({ over: true }, "");
  dialog.addEventListener("close", () => history.state?.over && history.back());
  addEventListener("popstate", () => dialog.close(), { once: true });
  dialog.showModal();
}

// One stop of the Tab key for many buttons; arrow keys, Home and End move among them.
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

// Up and down in a grid whose number of columns the width decides.
function lines(list, at) {
  if (at < 0) return {};
  const columns = list.filter((each) => each.offsetTop === list[0].offsetTop).length;
  return { ArrowDown: Math.min(at + columns, list.length - 1), ArrowUp: Math.max(at - columns, 0) };
}

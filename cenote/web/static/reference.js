// The OpenAPI document as a page: what can be asked, with which parameters, what comes back; GET can be tried.
import { ask } from "./ask.js";
import { el, field, trouble } from "./dom.js";

const target = document.getElementById("operations");
const LIMITS = {
  minimum: "≥", maximum: "≤", exclusiveMinimum: ">", exclusiveMaximum: "<", minLength: "length ≥",
  maxLength: "length ≤", pattern: "like",
};
const MOST = 20_000; // characters of an answer that are shown

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const some = schema.anyOf ?? schema.oneOf;
  if (some) return some.map(typeOf).join(" | ");
  if (schema.type === "array") return `[${typeOf(schema.items)}, …]`;
  if (schema.properties) return `{${Object.keys(schema.properties).join(", ")}}`;
  return [schema.type ?? "", schema.format && `(${schema.format})`].filter(Boolean).join(" ");
}

function kindOf(schema = {}) {
  const some = [schema, ...(schema.anyOf ?? [])]; // a limit may stand beside "or null"
  const limits = some.flatMap((one) => Object.entries(LIMITS).filter(([name]) => one[name] !== undefined)
    .map(([name, sign]) => `${sign} ${one[name]}`));
  const given = schema.default ?? null;
  const without = given === null || String(given) === "" ? "" : `default ${JSON.stringify(given)}`;
  return [typeOf(schema), ...limits, without].filter(Boolean).join("; ");
}

function parametersOf({ parameters = [], requestBody }) {
  const line = (name, where, kind, meaning = "") =>
    el("tr", {}, el("th", { scope: "row" }, name), [where, kind, meaning].map((cell) => el("td", {}, cell)));
  const rows = parameters.map(({ name, in: where, required, description, schema }) =>
    line(el("code", {}, name), required ? `${where}, needed` : where, kindOf(schema), description));
  for (const [kind, { schema }] of Object.entries(requestBody?.content ?? {})) {
    rows.push(line("body", "needed", `${kind}: ${typeOf(schema)}`));
  }
  if (!rows.length) return null;
  const heads = ["name", "where", "kind", "meaning"].map((head) => el("th", { scope: "col" }, head));
  return el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "away" }, "Parameters"),
    el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
}

function answersOf({ responses = {} }) {
  return el("ul", { class: "answers" }, Object.entries(responses).map(([code, { description = "", content = {} }]) => {
    const kinds = Object.entries(content).map(([kind, { schema }]) => [kind, typeOf(schema)].filter(Boolean).join(": "));
    return el("li", {}, el("strong", {}, code), ` ${description} `, el("span", { class: "hint" }, kinds.join("; ")));
  }));
}

// A form for a question that changes nothing.
function trial(path, { parameters = [] }) {
  const inputs = parameters.filter(({ in: where }) => where !== "header")
    .map((parameter) => ({ ...parameter, input: el("input", { type: "text", autocomplete: "off" }) }));
  const shown = el("pre", { tabIndex: 0, hidden: true });
  const picture = el("img", { alt: "The answer", hidden: true });
  const said = el("p", { class: "status", role: "status" });

  function address() {
    const query = new URLSearchParams();
    let place = path;
    for (const { name, in: where, input } of inputs) {
      if (where === "path") place = place.replace(`{${name}}`, encodeURIComponent(input.value));
      else if (input.value) query.append(name, input.value);
    }
    return query.size ? `${place}?${query}` : place;
  }

  async function run(event) {
    event.preventDefault();
    const [asked, started] = [address(), performance.now()];
    said.textContent = `GET ${asked} …`;
    try {
      const answer = await fetch(asked);
      const image = answer.headers.get("content-type")?.startsWith("image/");
      if (image) picture.src = URL.createObjectURL(await answer.blob());
      else shown.textContent = pretty(await answer.text());
      [picture.hidden, shown.hidden] = [!image, Boolean(image)];
      said.textContent = `GET ${asked}: ${answer.status}, ${Math.round(performance.now() - started)} ms`;
    } catch {
      said.textContent = "The server does not answer. Is `cenote serve` still running?";
    }
  }

  return el("details", {}, el("summary", {}, "Try it"),
    el("form", { class: "row", onsubmit: run }, inputs.map(({ name, input }) => field(name, input)),
      el("button", { type: "submit" }, "Ask")), said, shown, picture);
}

function pretty(text) {
  try {
    text = JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    // Then as it is.
  }
  return text.length > MOST ? `${text.slice(0, MOST)} …` : text;
}

function shapesOf(schemas) {
  const shape = ([name, { description, properties = {} }]) => el("details", {}, el("summary", {}, name),
    description && el("p", { class: "hint" }, description),
    el("ul", { class: "answers" }, Object.entries(properties).map(([key, schema]) => el("li", {},
      el("code", {}, key), ` ${typeOf(schema)} `, el("span", { class: "hint" }, schema.description ?? "")))));
  return el("section", {}, el("h2", {}, "Shapes"), Object.entries(schemas).map(shape));
}

function sectionOf(path, verb, operation) {
  return el("section", { class: "operation" },
    el("h2", {}, el("span", { class: "verb" }, verb.toUpperCase()), " ", el("code", {}, path)),
    el("p", {}, operation.description || operation.summary || ""),
    parametersOf(operation), answersOf(operation), verb === "get" && trial(path, operation));
}

async function begin() {
  try {
    const { paths, components } = await ask("/api/openapi.json");
    target.replaceChildren(...Object.entries(paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([verb, operation]) => sectionOf(path, verb, operation))),
      shapesOf(components?.schemas ?? {}));
  } catch (error) {
    target.replaceChildren(trouble(error, begin));
  }
}
begin();

// Render the OpenAPI description: endpoints, parameters, responses; GET requests can be tried.
import { request } from "./api.js";
import { el, field, errorBox } from "./dom.js";

const target = document.getElementById("operations");
const LIMITS = {
  minimum: "≥", maximum: "≤", exclusiveMinimum: ">", exclusiveMaximum: "<", minLength: "length ≥",
  maxLength: "length ≤", pattern: "like",
};
const MOST = 20_000; // characters of a response that are shown

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
  const some = [schema, ...(schema.anyOf ?? [])]; // optional types keep their limits in anyOf
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
    line(el("code", {}, name), required ? `${where}, required` : where, kindOf(schema), description));
  for (const [kind, { schema }] of Object.entries(requestBody?.content ?? {})) {
    rows.push(line("body", "required", `${kind}: ${typeOf(schema)}`));
  }
  if (!rows.length) return null;
  const heads = ["name", "in", "type", "description"].map((head) => el("th", { scope: "col" }, head));
  return el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "away" }, "Parameters"),
    el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)));
}

function answersOf({ responses = {} }) {
  return el("ul", { class: "answers" }, Object.entries(responses).map(([code, { description = "", content = {} }]) => {
    const kinds = Object.entries(content).map(([kind, { schema }]) => [kind, typeOf(schema)].filter(Boolean).join(": "));
    return el("li", {}, el("strong", {}, code), ` ${description} `, el("span", { class: "hint" }, kinds.join("; ")));
  }));
}

// A form to try a GET request.
function trial(path, { parameters = [] }) {
  const inputs = parameters.filter(({ in: where }) => where !== "header")
    .map((parameter) => ({ ...parameter, input: el("input", { type: "text", autocomplete: "off" }) }));
  const shown = el("pre", { tabIndex: 0, hidden: true });
  const picture = el("img", { alt: "The response", hidden: true });
  const statusLine = el("p", { class: "status", role: "status" });

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
    statusLine.textContent = `GET ${asked} …`;
    try {
      const answer = await fetch(asked);
      const image = answer.headers.get("content-type")?.startsWith("image/");
      if (image) picture.src = URL.createObjectURL(await answer.blob());
      else shown.textContent = pretty(await answer.text());
      [picture.hidden, shown.hidden] = [!image, Boolean(image)];
      statusLine.textContent = `GET ${asked}: ${answer.status}, ${Math.round(performance.now() - started)} ms`;
    } catch {
      statusLine.textContent = "The server does not answer. Is `cenote serve` still running?";
    }
  }

  return el("details", {}, el("summary", {}, "Try it"),
    el("form", { class: "row", onsubmit: run }, inputs.map(({ name, input }) => field(name, input)),
      el("button", { type: "submit" }, "Send")), statusLine, shown, picture);
}

function pretty(text) {
  try {
    text = JSON.stringify(JSON.parse(text), null, 1);
  } catch {
    // Not JSON.
  }
  return text.length > MOST ? `${text.slice(0, MOST)} …` : text;
}

function shapesOf(schemas) {
  const shape = ([name, { description, properties = {} }]) => el("details", {}, el("summary", {}, name),
    description && el("p", { class: "hint" }, description),
    el("ul", { class: "answers" }, Object.entries(properties).map(([key, schema]) => el("li", {},
      el("code", {}, key), ` ${typeOf(schema)} `, el("span", { class: "hint" }, schema.description ?? "")))));
  return el("section", {}, el("h2", {}, "Schemas"), Object.entries(schemas).map(shape));
}

function sectionOf(path, verb, operation) {
  return el("section", { class: "operation" },
    el("h2", {}, el("span", { class: "verb" }, verb.toUpperCase()), " ", el("code", {}, path)),
    el("p", {}, operation.description || operation.summary || ""),
    parametersOf(operation), answersOf(operation), verb === "get" && trial(path, operation));
}

async function begin() {
  try {
    const { paths, components } = await request("/api/openapi.json");
    target.replaceChildren(...Object.entries(paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([verb, operation]) => sectionOf(path, verb, operation))),
      shapesOf(components?.schemas ?? {}));
  } catch (error) {
    target.replaceChildren(errorBox(error, begin));
  }
}
begin();

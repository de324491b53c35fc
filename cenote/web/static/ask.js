// Questions to the server: answers are JSON, errors are sentences, a full queue is waited for.

export class Failure extends Error {
  constructor(sentence, code = 0) {
    super(sentence);
    this.code = code;
  }
}

const PATIENCE = 60; // times that a full queue, or a worker that starts again, is waited for
const GONE = "The server does not answer. Is `cenote serve` still running?";

export const address = (path, parameters = {}) => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
};

// `waiting(sentence)` hears why there is no answer yet.
export async function ask(path, parameters, { signal, waiting, method = "GET" } = {}) {
  for (let tries = 0; ; tries++) {
    let response;
    try {
      response = await fetch(address(path, parameters), { method, signal, headers: { accept: "application/json" } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure(GONE);
    }
    if (response.ok) return response.json();
    const sentence = await reason(response);
    if (response.status !== 503 || tries >= PATIENCE) throw new Failure(sentence, response.status);
    const seconds = Math.min(Math.max(Number(response.headers.get("retry-after")) || 1, 0.2), 30);
    waiting?.(`${sentence} Asking again in ${seconds} s.`);
    await pause(seconds * 1000, signal);
  }
}

async function reason(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
  } catch {
    // Not from this server, or cut off.
  }
  return unsaid(response.status);
}

const unsaid = (code) => `The server answered ${code} without saying why.`;

export function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("cancelled", "AbortError"));
    }, { once: true });
  });
}

export const cancelled = (error) => error?.name === "AbortError";

// A newer question cancels the older one.
export class Latest {
  #controller = null;

  async run(work) {
    this.cancel();
    const controller = (this.#controller = new AbortController());
    return work(controller.signal);
  }

  cancel() {
    this.#controller?.abort();
  }
}

// Many questions, a few at a time, in the order in which they came.
export class Line {
  #waiting = [];
  #running = 0;

  constructor(abreast = 2) {
    this.abreast = abreast;
  }

  add(work, signal) {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ work, signal, resolve, reject });
      this.#next();
    });
  }

  #next() {
    while (this.#running < this.abreast && this.#waiting.length) {
      const { work, signal, resolve, reject } = this.#waiting.shift();
      if (signal?.aborted) {
        reject(new DOMException("cancelled", "AbortError"));
        continue;
      }
      this.#running += 1;
      work().then(resolve, reject).finally(() => {
        this.#running -= 1;
        this.#next();
      });
    }
  }
}

// XMLHttpRequest, because fetch does not tell how much was sent.
export function send(file, { progress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const body = new FormData();
    body.append("file", file, "photograph"); // its name is nobody's business
    request.open("POST", "/api/photos");
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && progress?.(event.loaded / event.total);
    request.onload = () => {
      if (request.status === 201) resolve(request.response);
      else reject(Object.assign(new Failure(request.response?.detail ?? unsaid(request.status), request.status),
        { after: Number(request.getResponseHeader("retry-after")) || 1 }));
    };
    request.onerror = () => reject(new Failure(GONE));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(body);
  });
}

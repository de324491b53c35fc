// Requests to the server: responses are JSON, errors are sentences, 503 is tried again.

export class Failure extends Error {
  constructor(message, code = 0) {
    super(message);
    this.code = code;
  }
}

const PATIENCE = 60; // attempts while the server is busy or its worker restarts
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

// `waiting(message)` is called before each new attempt.
export async function request(path, parameters, { signal, waiting, method = "GET" } = {}) {
  for (let tries = 0; ; tries++) {
    let response;
    try {
      response = await fetch(address(path, parameters), { method, signal, headers: { accept: "application/json" } });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure(GONE);
    }
    if (response.ok) return response.json();
    const message = await reason(response);
    if (response.status !== 503 || tries >= PATIENCE) throw new Failure(message, response.status);
    const seconds = Math.min(Math.max(Number(response.headers.get("retry-after")) || 1, 0.2), 30);
    waiting?.(`${message} Trying again in ${seconds} s.`);
    await pause(seconds * 1000, signal);
  }
}

async function reason(response) {
  try {
    const { detail } = await response.json();
    if (typeof detail === "string") return detail;
  } catch {
    // Not JSON: not from this server, or incomplete.
  }
  return statusMessage(response.status);
}

const statusMessage = (code) => `The server answered with status ${code}.`;

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

// Run one task at a time: a new one cancels the previous one.
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

// Run tasks in order, a limited number at the same time.
export class TaskQueue {
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

// XMLHttpRequest, because fetch does not report the progress of uploads.
export function send(file, { progress, signal }) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    const body = new FormData();
    body.append("file", file, "photograph"); // the file name is private
    request.open("POST", "/api/photos");
    request.responseType = "json";
    request.upload.onprogress = (event) => event.lengthComputable && progress?.(event.loaded / event.total);
    request.onload = () => {
      if (request.status === 201) resolve(request.response);
      else reject(Object.assign(new Failure(request.response?.detail ?? statusMessage(request.status), request.status),
        { after: Number(request.getResponseHeader("retry-after")) || 1 }));
    };
    request.onerror = () => reject(new Failure(GONE));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal?.addEventListener("abort", () => request.abort(), { once: true });
    request.send(body);
  });
}

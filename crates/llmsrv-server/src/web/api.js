// Asking the server. A key is kept in memory only: it is gone when the page is.

import { dialog, el } from "./dom.js";

let key = "";
let asking = null;

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

// Asks for a key, once for all requests that want one.
export function askKey(wrong) {
  asking ??= (async () => {
    const input = el("input", { type: "password", "aria-label": "API key", autocomplete: "off", autofocus: true, spellcheck: "false" });
    const answer = await dialog("API key", [
      el("p", {}, wrong ? "The server does not know this key." : "This server asks for a key. It is kept until this page is closed or loaded again, and is stored nowhere."),
      input,
    ], [{ label: "Cancel", value: "" }, { label: "Use this key", value: "yes", kind: "main" }], { class: "small" });
    if (answer === "yes") key = input.value.trim();
    return answer === "yes" && key !== "";
  })().finally(() => { asking = null; });
  return asking;
}

// Returns the answer to a request, or throws why there is none. Texts of keys never leave for
// another address: paths are those of this server.
export async function request(path, { method = "GET", body, signal } = {}) {
  for (;;) {
    const used = key;
    const headers = used ? { Authorization: "Bearer " + used } : {};
    const text = body === undefined ? undefined : JSON.stringify(body);
    let response;
    try {
      response = await fetch(path, { method, headers, body: text, signal, cache: "no-store", redirect: "error", credentials: "omit", referrerPolicy: "no-referrer" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Refused(0, "The server does not answer. Is it running?");
    }
    if (response.status === 401) {
      // Another request may have asked meanwhile.
      if (used !== key || await askKey(used !== "")) continue;
      throw new Refused(401, "This server wants a key.");
    }
    if (!response.ok) throw new Refused(response.status, await reason(response));
    return response;
  }
}

async function reason(response) {
  try {
    const { error } = JSON.parse(await response.text());
    if (typeof error === "string" && error) return error;
  } catch { /* not one of the server's own */ }
  return "The server answered with status " + response.status + ".";
}

export const get = async (path, options) => (await request(path, options)).json();
export const post = async (path, body) => (await request(path, { method: "POST", body })).json();

// Objects of a stream, one from each line. An error in mid-stream is thrown.
export async function* lines(path, body, signal) {
  const response = await request(path, { method: "POST", body, signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const take = (line) => {
    const object = JSON.parse(line);
    if (typeof object.error === "string") throw new Refused(200, object.error);
    return object;
  };
  let rest = "";
  const broken = (error) => { throw error.name === "AbortError" ? error : new Refused(0, "The connection to the server was lost."); };
  try {
    for (;;) {
      const { value, done } = await reader.read().catch(broken);
      if (done) break;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const line of parts) if (line) yield take(line);
    }
    if (rest.trim()) yield take(rest);
  } finally {
    reader.cancel().catch(() => {});
  }
}

// ---- what the app knows of the server ----

const LEVELS = { infer: 0, manage: 1, admin: 2 };
let role = "admin";
export const mayManage = () => LEVELS[role] >= LEVELS.manage;

// Learns what the caller may do; asks for a key where one is needed.
export async function learnRole() {
  const status = await get("api/status");
  role = Object.hasOwn(LEVELS, status.role) ? status.role : "infer";
}

export const hasKey = () => key !== "";

// The models, those that `default` stands for marked; `default` itself is no model of its own.
export async function models() {
  const { models } = await get("api/tags");
  const standing = models.find((model) => /^default(:latest)?$/.test(model.name));
  const meant = standing?.details?.parent_model || standing?.name;
  return models
    .filter((model) => model !== standing || meant === standing.name)
    .map((model) => ({ ...model, capabilities: model.capabilities ?? [], details: model.details ?? {}, isDefault: model.name === meant || model.name === meant + ":latest" }))
    .sort((a, b) => b.isDefault - a.isDefault);
}

export const show = (model) => post("api/show", { model });

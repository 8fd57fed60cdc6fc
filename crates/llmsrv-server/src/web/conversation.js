// Conversations as data: a tree of messages, of which one path is shown. No elements here.
//
// A conversation: { id, title, updated, model, system, options, leaf, nodes: { id: node } }
// A node: { id, parent, role, content, thinking, images, tool_calls, tool_name, model, stats, error, stopped, unfinished }

export const newId = () => [...crypto.getRandomValues(new Uint8Array(12))].map((it) => it.toString(36).padStart(2, "0")).join("");

export function create(model = "") {
  return { id: newId(), title: "", updated: Date.now(), model, system: "", options: {}, leaf: null, nodes: {} };
}

export function add(chat, parent, node) {
  const whole = { id: newId(), parent, content: "", ...node };
  chat.nodes[whole.id] = whole;
  chat.leaf = whole.id;
  return whole;
}

// The nodes from the first one to `leaf`.
export function path(chat, leaf = chat.leaf) {
  const nodes = [], seen = new Set();
  for (let node = chat.nodes[leaf]; node && !seen.has(node.id); node = chat.nodes[node.parent]) {
    seen.add(node.id);
    nodes.push(node);
  }
  return nodes.reverse();
}

// The other versions of a message, itself among them, oldest first.
export function siblings(chat, node) {
  return Object.values(chat.nodes).filter((it) => it.parent === node.parent && it.role === node.role);
}

// The end of the newest branch below a node.
export function newestLeaf(chat, node) {
  const last = new Map();
  // Nodes are kept in the order they were made in.
  for (const it of Object.values(chat.nodes)) last.set(it.parent, it.id);
  let id = node.id;
  for (let n = Object.keys(chat.nodes).length; n > 0 && last.has(id); n--) id = last.get(id);
  return id;
}

// What a conversation is called by its first words.
export function titleOf(chat) {
  if (chat.title) return chat.title;
  const first = path(chat).find((node) => node.role === "user");
  const words = (first?.content ?? "").trim().replace(/\s+/g, " ");
  return words.length > 60 ? words.slice(0, 60).replace(/\s\S*$/, "") + " …" : words || (first?.images?.length ? "Image" : "New chat");
}

// The messages of a request that asks for what follows `leaf`.
export function messages(chat, leaf) {
  const out = chat.system.trim() ? [{ role: "system", content: chat.system }] : [];
  for (const node of path(chat, leaf)) {
    // An answer of which there is nothing says nothing.
    if (node.role === "assistant" && !node.content && !node.tool_calls?.length) continue;
    const message = { role: node.role, content: node.content };
    if (node.images?.length) message.images = node.images.map((it) => it.data);
    if (node.tool_calls?.length) message.tool_calls = node.tool_calls;
    if (node.role === "tool") { message.tool_name = node.tool_name; message.tool_call_id = node.tool_call_id; }
    out.push(message);
  }
  return out;
}

// ---- out and in ----

const FORMAT = "llmsrv-conversations";

export function toJson(chats) {
  return JSON.stringify({ format: FORMAT, version: 1, exported: new Date().toISOString(), conversations: chats }, null, 1);
}

const NAMES = { user: "You", assistant: "Assistant", system: "System", tool: "Tool" };
const MARK = /^(\\*)<!-- message: /gm;

// The path that is shown. Each message begins with a comment, by which it can be read in again.
export function toMarkdown(chat) {
  const guard = (text) => text.replace(MARK, "\\$&");
  const parts = ["# " + titleOf(chat).replace(/\n/g, " "), ""];
  const part = (role, model, text) => parts.push("<!-- message: " + role + " -->", "## " + NAMES[role] + (model ? " (" + model + ")" : ""), "", guard(text), "");
  if (chat.system.trim()) part("system", "", chat.system);
  for (const node of path(chat)) {
    if (!Object.hasOwn(NAMES, node.role)) continue;
    let text = node.content;
    if (node.thinking) text = "<details><summary>Thinking</summary>\n\n" + node.thinking.trim() + "\n\n</details>\n\n" + text;
    if (node.tool_calls?.length) text += "\n\n```json\n" + JSON.stringify(node.tool_calls.map((it) => it.function), null, 2) + "\n```";
    if (node.images?.length) text += "\n\n*" + node.images.length + (node.images.length === 1 ? " image" : " images") + "*";
    part(node.role, node.role === "assistant" ? node.model : "", text);
  }
  return parts.join("\n");
}

export class Unreadable extends Error {}

// Bounds of what is read in.
const MAX_FILE = 64 << 20, MAX_CHATS = 2000, MAX_NODES = 20000;

// The conversations of a file, with new ids. What is no text where one belongs becomes an empty one.
export function fromFile(text) {
  if (text.length > MAX_FILE) throw new Unreadable("The file is larger than 64 MB.");
  const chats = text.trimStart().startsWith("{") ? fromJson(text) : fromMarkdown(text);
  if (!chats.length) throw new Unreadable("There is no conversation in this file.");
  return chats;
}

const isObject = (it) => typeof it === "object" && it !== null && !Array.isArray(it);
const textOf = (it) => (typeof it === "string" ? it : "");

function fromJson(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Unreadable("The file is no JSON.");
  }
  if (file.format !== FORMAT || !Array.isArray(file.conversations)) throw new Unreadable("The file is not an export of this app.");
  return file.conversations.filter(isObject).slice(0, MAX_CHATS).map((from) => {
    const chat = create(textOf(from.model));
    chat.title = textOf(from.title).slice(0, 200);
    chat.system = textOf(from.system);
    chat.updated = Number.isFinite(from.updated) ? from.updated : Date.now();
    chat.options = optionsOf(from.options);
    const nodes = isObject(from.nodes) ? Object.values(from.nodes).filter(isObject).slice(0, MAX_NODES) : [];
    const ids = new Map(nodes.map((node) => [node.id, newId()]));
    for (const node of nodes) {
      if (!Object.hasOwn(NAMES, node.role)) continue;
      const id = ids.get(node.id);
      chat.nodes[id] = { id, parent: ids.get(node.parent) ?? null, role: node.role, content: textOf(node.content), ...kept(node) };
    }
    chat.leaf = ids.get(from.leaf) ?? Object.keys(chat.nodes).at(-1) ?? null;
    if (!chat.nodes[chat.leaf]) chat.leaf = null;
    return chat;
  });
}

function optionsOf(from) {
  if (!isObject(from)) return {};
  const known = (name) => (["think", "tools"].includes(name) ? textOf(from[name]) : ["temperature", "num_ctx", "num_predict", "seed"].includes(name) && Number.isFinite(from[name]));
  return Object.fromEntries(Object.entries(from).filter(([name]) => known(name)));
}

const FIGURES = ["tokens", "nanos", "prompt", "truncated", "first", "thought", "context"];

function kept(node) {
  const out = {};
  for (const name of ["thinking", "model", "error", "tool_name", "tool_call_id"]) if (textOf(node[name])) out[name] = node[name];
  if (node.stopped === true) out.stopped = true;
  if (isObject(node.stats)) {
    out.stats = { reason: textOf(node.stats.reason) };
    for (const name of FIGURES) out.stats[name] = Number.isFinite(node.stats[name]) ? Math.max(0, node.stats[name]) : 0;
  }
  if (Array.isArray(node.images)) out.images = node.images.filter((it) => isObject(it) && /^[A-Za-z0-9+\/=]+$/.test(textOf(it.data)) && /^image\/(png|jpeg|webp|gif)$/.test(it.kind)).map(({ data, kind }) => ({ data, kind })).slice(0, 16);
  if (Array.isArray(node.tool_calls)) {
    out.tool_calls = node.tool_calls.filter((it) => isObject(it) && isObject(it.function) && textOf(it.function.name)).map((it) => ({ id: textOf(it.id), function: { name: it.function.name, arguments: isObject(it.function.arguments) ? it.function.arguments : {} } }));
  }
  return out;
}

function fromMarkdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const chat = create();
  const title = /^# (.+)/.exec(lines[0] ?? "");
  if (title) chat.title = title[1].slice(0, 200);
  let role = "", model = "", held = [], inHead = false;
  const end = () => {
    if (!role) return;
    let content = held.join("\n").replace(/^\n+|\n+$/g, "").replace(/^\\(\\*<!-- message: )/gm, "$1"), thinking = "";
    const thought = role === "assistant" && /^<details><summary>Thinking<\/summary>\n\n([^]*?)\n\n<\/details>\n*/.exec(content);
    if (thought) { thinking = thought[1]; content = content.slice(thought[0].length); }
    if (role === "system") chat.system = content;
    else if (Object.keys(chat.nodes).length < MAX_NODES) add(chat, chat.leaf, { role, content, ...(thinking && { thinking }), ...(model && { model }) });
  };
  for (const line of lines) {
    const mark = /^<!-- message: (user|assistant|system|tool) -->$/.exec(line);
    if (mark) {
      end();
      role = mark[1];
      model = "";
      held = [];
      inHead = true;
    } else if (inHead && line.startsWith("## ")) {
      model = /\(([^()]*)\)$/.exec(line)?.[1] ?? "";
      inHead = false;
    } else held.push(line);
  }
  end();
  if (model) chat.model = model;
  return Object.keys(chat.nodes).length ? [chat] : [];
}

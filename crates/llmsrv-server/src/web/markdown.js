// Markdown as models write it, made into elements. Text of a model never becomes markup: elements are
// made one by one, addresses are checked, HTML stays text. Every step is linear in the text, and nesting is bounded.
//
// A `Renderer` follows a stream: blocks that have ended keep their elements, and only what comes after them
// is read and built again.

import { copy, el, iconButton } from "./dom.js";
import { colour, language } from "./highlight.js";

const MAX_DEPTH = 8;
// What follows is shown as plain text: far longer than what anybody reads.
const MAX_CELLS = 20000;

export class Renderer {
  #box;
  #text = "";
  // Where the text begins that may still change.
  #start = 0;
  #settled = 0;
  #code = null;

  constructor(box) {
    this.#box = box;
  }

  // Shows a text that begins with the one that was shown before.
  update(text, isWhole) {
    if (!text.startsWith(this.#text.slice(0, this.#start))) {
      this.#start = 0;
      this.#settled = 0;
      this.#code = null;
      this.#box.replaceChildren();
    }
    this.#text = text;
    if (!isWhole && this.#code) {
      const open = openFence(text.slice(this.#start));
      if (open) {
        this.#code.update(open.code);
        return;
      }
    }
    if (!isWhole) this.#settle(text.lastIndexOf("\n") + 1);
    const rest = text.slice(this.#start);
    const open = isWhole ? null : openFence(rest);
    this.#drop();
    this.#code = null;
    if (open) {
      this.#code = new CodeView(open.language);
      this.#code.update(open.code);
      this.#box.append(this.#code.element);
      return;
    }
    this.#box.append(...build(parse(rest.split("\n"), 0), 0));
    if (isWhole) {
      this.#start = text.length;
      this.#settled = this.#box.childNodes.length;
    }
  }

  // Blocks that end before the last one of the whole lines are finished. A line that is still being
  // written could be anything, so it ends nothing.
  #settle(end) {
    if (end <= this.#start) return;
    const lines = this.#text.slice(this.#start, end).split("\n");
    lines.pop();
    const blocks = parse(lines, 0);
    if (blocks.length < 2) return;
    const last = blocks[blocks.length - 1];
    let length = 0;
    for (let n = 0; n < last.at; n++) length += lines[n].length + 1;
    this.#code = null;
    this.#drop();
    this.#box.append(...build(blocks.slice(0, -1), 0));
    this.#settled = this.#box.childNodes.length;
    this.#start += length;
  }

  #drop() {
    while (this.#box.childNodes.length > this.#settled) this.#box.lastChild.remove();
  }
}

// ---- blocks: objects with `kind`, and `at`, the line they begin in ----

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*))?$/;
const QUOTE = /^ {0,3}> ?/;
const DIVIDER = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const indentOf = (line) => line.length - line.trimStart().length;
const isBlank = (line) => line.trim() === "";

// The code of a text that is nothing but a fence that nobody has closed.
function openFence(text) {
  const end = text.indexOf("\n");
  const match = FENCE.exec(end < 0 ? text : text.slice(0, end));
  if (!match || end < 0) return null;
  const code = text.slice(end + 1);
  const isClosed = code.split("\n").some((line) => closes(line, match[1]));
  return isClosed ? null : { language: match[2].trim(), code };
}

function closes(line, mark) {
  const text = line.trim();
  return text.length >= mark.length && indentOf(line) < 4 && text === mark[0].repeat(text.length);
}

export function parse(lines, depth) {
  const blocks = [];
  let n = 0;
  while (n < lines.length) {
    const line = lines[n];
    if (isBlank(line)) { n++; continue; }
    const at = n;
    const fence = FENCE.exec(line);
    if (fence) {
      const indent = indentOf(line), code = [];
      for (n++; n < lines.length && !closes(lines[n], fence[1]); n++) code.push(lines[n].slice(Math.min(indent, indentOf(lines[n]))));
      n++;
      blocks.push({ kind: "code", at, language: fence[2].trim(), text: code.join("\n") });
      continue;
    }
    if (indentOf(line) >= 4 || line[0] === "\t") {
      const code = [];
      for (; n < lines.length && (isBlank(lines[n]) || /^( {4}|\t)/.test(lines[n])); n++) code.push(lines[n].replace(/^( {1,4}|\t)/, ""));
      blocks.push({ kind: "code", at, language: "", text: code.join("\n").trimEnd() });
      continue;
    }
    const heading = HEADING.exec(line);
    if (heading) {
      blocks.push({ kind: "heading", at, level: heading[1].length, text: heading[2] ?? "" });
      n++;
      continue;
    }
    if (RULE.test(line)) {
      blocks.push({ kind: "rule", at });
      n++;
      continue;
    }
    if (depth < MAX_DEPTH && QUOTE.test(line)) {
      const inner = [];
      for (; n < lines.length && (QUOTE.test(lines[n]) || (!isBlank(lines[n]) && !isBlank(inner[inner.length - 1]) && !starts(lines[n], depth))); n++) inner.push(lines[n].replace(QUOTE, ""));
      blocks.push({ kind: "quote", at, blocks: parse(inner, depth + 1) });
      continue;
    }
    const item = depth < MAX_DEPTH && ITEM.exec(line);
    if (item) {
      const [list, next] = readList(lines, n, item, depth);
      blocks.push({ ...list, at });
      n = next;
      continue;
    }
    if (line.includes("|") && n + 1 < lines.length && DIVIDER.test(lines[n + 1])) {
      const head = cells(line), aligns = cells(lines[n + 1]);
      if (head.length === aligns.length) {
        const rows = [];
        for (n += 2; n < lines.length && !isBlank(lines[n]) && !starts(lines[n], depth) && rows.length * head.length < MAX_CELLS; n++) rows.push(cells(lines[n]));
        blocks.push({ kind: "table", at, head, rows, aligns: aligns.map((it) => (it.startsWith(":") ? 1 : 0) + (it.endsWith(":") ? 2 : 0)) });
        continue;
      }
    }
    const text = [line];
    for (n++; n < lines.length && !isBlank(lines[n]) && !starts(lines[n], depth); n++) text.push(lines[n]);
    blocks.push({ kind: "text", at, text: text.map((it) => it.trimStart()).join("\n").trimEnd() });
  }
  return blocks;
}

// Whether a line ends the paragraph before it.
function starts(line, depth) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return true;
  if (depth >= MAX_DEPTH) return false;
  if (QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  return item !== null && item[4] !== undefined && item[4] !== "" && (item[2].length === 1 || /^1[.)]$/.test(item[2]));
}

function readList(lines, n, first, depth) {
  const isOrdered = /\d/.test(first[2]);
  const mark = first[2].slice(-1);
  const items = [];
  let isLoose = false;
  while (n < lines.length) {
    const item = ITEM.exec(lines[n]);
    if (!item || item[2].slice(-1) !== mark || /\d/.test(item[2]) !== isOrdered || RULE.test(lines[n])) break;
    const gap = item[3] && item[3].length <= 4 && item[4] ? item[3].length : 1;
    const width = item[1].length + item[2].length + gap;
    const inner = [(item[3] ? lines[n].slice(width) : "")];
    let blanks = 0;
    for (n++; n < lines.length; n++) {
      const line = lines[n];
      if (isBlank(line)) { blanks++; inner.push(""); continue; }
      const indent = indentOf(line);
      // Models often indent by less than the width of the mark.
      if (indent >= width || (indent >= 2 && indent >= item[1].length + 2)) {
        if (blanks && indent < width && !ITEM.test(line.trimStart()) && indent < 2) break;
        inner.push(line.slice(Math.min(indent, width)));
      } else if (blanks === 0 && !ITEM.test(line) && !starts(line, depth)) inner.push(line);
      else break;
      if (blanks) isLoose = true;
      blanks = 0;
    }
    while (inner.length && isBlank(inner[inner.length - 1])) inner.pop();
    items.push(inner);
    if (blanks && n < lines.length) {
      const next = ITEM.exec(lines[n]);
      if (next && next[2].slice(-1) === mark) isLoose = true;
    }
  }
  const parsed = items.map((inner) => {
    const task = /^\[([ xX])\][ \t]+/.exec(inner[0] ?? "");
    if (task) inner[0] = inner[0].slice(task[0].length);
    return { task: task ? task[1] !== " " : null, blocks: parse(inner, depth + 1) };
  });
  return [{ kind: "list", isOrdered, isLoose, start: isOrdered ? parseInt(first[2], 10) : 1, items: parsed }, n];
}

function cells(line) {
  const text = line.trim().replace(/^\|/, "").replace(/([^\\]|^)\|$/, "$1");
  const out = [];
  let cell = "", inCode = false;
  for (let n = 0; n < text.length; n++) {
    if (text[n] === "\\" && text[n + 1] === "|") { cell += "|"; n++; continue; }
    if (text[n] === "`") inCode = !inCode && text.indexOf("`", n + 1) > 0;
    if (text[n] === "|" && !inCode) { out.push(cell.trim()); cell = ""; } else cell += text[n];
  }
  out.push(cell.trim());
  return out.slice(0, 64);
}

const ALIGN = ["", "left", "right", "centre"];

function build(blocks, depth) {
  return blocks.map((block) => {
    switch (block.kind) {
      case "code": {
        const view = new CodeView(block.language);
        view.update(block.text);
        view.end();
        return view.element;
      }
      // The page has h1, a conversation h2.
      case "heading": return el("h" + Math.min(block.level + 2, 6), { class: "h" + block.level }, inline(block.text));
      case "rule": return el("hr");
      case "quote": return el("blockquote", {}, build(block.blocks, depth + 1));
      case "list": {
        const list = el(block.isOrdered ? "ol" : "ul", { start: block.isOrdered && block.start !== 1 ? String(block.start) : undefined });
        for (const { task, blocks } of block.items) {
          const item = el("li", { class: task === null ? undefined : "task" });
          if (task !== null) item.append(el("input", { type: "checkbox", checked: task, disabled: true, "aria-label": task ? "done" : "to do" }), " ");
          for (const inner of blocks) {
            if (inner.kind === "text" && !block.isLoose) item.append(...inline(inner.text));
            else item.append(...build([inner], depth + 1));
          }
          list.append(item);
        }
        return list;
      }
      case "table": {
        const row = (tag, texts) => el("tr", {}, block.head.map((_, n) => el(tag, { class: ALIGN[block.aligns[n]] || undefined, scope: tag === "th" ? "col" : undefined }, inline(texts[n] ?? ""))));
        return el("div", { class: "table", tabindex: "0", role: "group", "aria-label": "Table" },
          el("table", {}, el("thead", {}, row("th", block.head)), el("tbody", {}, block.rows.map((texts) => row("td", texts)))));
      }
      default: return el("p", {}, inline(block.text));
    }
  });
}

// Code that grows: whole lines are coloured once.
class CodeView {
  #rules;
  #shown = 0;
  #open = null;
  #text = "";
  #code = el("code");
  #last = document.createTextNode("");

  constructor(name) {
    const word = name.split(/[\s,{]/)[0];
    this.#rules = language(word);
    this.#code.append(this.#last);
    const button = iconButton("copy", "Copy the code", () => copy(this.#text, button));
    this.element = el("figure", { class: "code" },
      el("figcaption", {}, el("span", {}, word.slice(0, 40) || "code"), button),
      el("pre", { tabindex: "0", "aria-label": "Code" + (word ? " in " + word.slice(0, 40) : "") }, this.#code));
  }

  update(text) {
    this.#text = text;
    let end;
    while ((end = text.indexOf("\n", this.#shown)) >= 0) {
      this.#line(text.slice(this.#shown, end));
      this.#last.before("\n");
      this.#shown = end + 1;
    }
    this.#last.data = text.slice(this.#shown);
  }

  end() {
    this.#line(this.#last.data);
    this.#last.data = "";
    this.#shown = this.#text.length;
  }

  #line(line) {
    const [parts, open] = colour(this.#rules, line, this.#open);
    this.#open = open;
    for (const [kind, text] of parts) this.#last.before(kind ? el("span", { class: "t-" + kind }, text) : text);
  }
}

// ---- inline ----

const ADDRESS = /https?:\/\/[^\s<>"'`\\]+/y;
const SAFE = /^(https?:\/\/|mailto:)/i;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", mdash: "—", ndash: "–", hellip: "…", copy: "©" };
const PLAIN = /[^\\`*_~[!<&\nh]+/y;

// An address that a click may open, or null.
export function safe(address) {
  const text = address.trim();
  if (!SAFE.test(text) || /[\u0000-\u001f\u007f\u202a-\u202e\u2066-\u2069]/.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

function anchor(address, ...children) {
  return el("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

// Elements and texts of one paragraph.
export function inline(text, depth = 0) {
  // Nodes; marks of emphasis stand among them as objects until it is known what they belong to.
  const out = [];
  let plain = "";
  const flush = () => { if (plain) { out.push(plain); plain = ""; } };
  const push = (node) => { flush(); out.push(node); };
  // Runs of backticks by their length, so that one that nothing closes is not looked for again and again.
  let ticks = null;
  const brackets = matching(text);
  let at = 0;
  while (at < text.length) {
    PLAIN.lastIndex = at;
    const run = PLAIN.exec(text);
    if (run) { plain += run[0]; at += run[0].length; continue; }
    const c = text[at], next = text[at + 1];
    if (c === "\\" && next !== undefined && /[!-\/:-@[-`{-~\n]/.test(next)) {
      if (next === "\n") push(el("br")); else plain += next;
      at += 2;
    } else if (c === "\n") {
      plain = plain.trimEnd();
      push(el("br"));
      at++;
    } else if (c === "`") {
      let end = at;
      while (text[end] === "`") end++;
      ticks ??= backticks(text);
      const length = end - at;
      // One whose first backtick was escaped is shorter than those that were counted.
      const runs = ticks.get(length) ?? { starts: [], next: 0 };
      while (runs.next < runs.starts.length && runs.starts[runs.next] < end) runs.next++;
      const close = runs.starts[runs.next];
      if (close === undefined) { plain += text.slice(at, end); at = end; continue; }
      const code = text.slice(end, close).replace(/\n/g, " ");
      push(el("code", {}, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code));
      at = close + length;
    } else if (c === "*" || c === "_" || c === "~") {
      let end = at;
      while (text[end] === c) end++;
      const before = text[at - 1] ?? " ", after = text[end] ?? " ";
      const spaceBefore = /\s/.test(before), spaceAfter = /\s/.test(after);
      const markBefore = /[\p{P}\p{S}]/u.test(before), markAfter = /[\p{P}\p{S}]/u.test(after);
      const left = !spaceAfter && (!markAfter || spaceBefore || markBefore);
      const right = !spaceBefore && (!markBefore || spaceAfter || markAfter);
      const inWord = c === "_";
      const length = end - at;
      if (c === "~" && length !== 2) plain += text.slice(at, end);
      else push({ mark: c, length, opens: left && (!inWord || !right || markBefore), closes: right && (!inWord || !left || markAfter) });
      at = end;
    } else if ((c === "[" || (c === "!" && next === "[")) && depth < MAX_DEPTH) {
      const link = readLink(text, c === "!" ? at + 1 : at, brackets);
      if (!link) { plain += c; at++; continue; }
      const href = safe(link.address);
      // Pictures would be fetched from elsewhere without anybody's click.
      const label = c === "!" ? [link.label || link.address] : inline(link.label, depth + 1);
      if (href) push(anchor(href, ...label));
      else plain += text.slice(at, link.end);
      at = link.end;
    } else if (c === "<") {
      const match = /^<((?:https?:\/\/|mailto:)[^\s<>]*)>/i.exec(text.slice(at, at + 2100));
      const href = match && safe(match[1]);
      if (!href) { plain += c; at++; continue; }
      push(anchor(href, match[1]));
      at += match[0].length;
    } else if (c === "&") {
      const match = /^&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));/.exec(text.slice(at, at + 12));
      const code = match && (match[1] ? parseInt(match[1], 10) : match[2] ? parseInt(match[2], 16) : 0);
      const character = !match ? null : match[3] ? (Object.hasOwn(ENTITIES, match[3]) ? ENTITIES[match[3]] : null) : code > 31 && code < 0x110000 ? String.fromCodePoint(code) : null;
      plain += character ?? c;
      at += character === null ? 1 : match[0].length;
    } else if (c === "h" && depth === 0 && !/[\w]/.test(text[at - 1] ?? " ")) {
      ADDRESS.lastIndex = at;
      const found = ADDRESS.exec(text)?.[0];
      if (!found) { plain += c; at++; continue; }
      let address = found.replace(/[.,;:!?*_~\]]+$/, "");
      if (address.endsWith(")") && !address.includes("(")) address = address.replace(/\)+[.,;:!?]*$/, "");
      const href = safe(address);
      if (href) push(anchor(href, address)); else plain += address;
      at += address.length;
    } else {
      plain += c;
      at++;
    }
  }
  flush();
  return emphasise(out);
}

function backticks(text) {
  const runs = new Map();
  for (let at = text.indexOf("`"); at >= 0; at = text.indexOf("`", at)) {
    let end = at;
    while (text[end] === "`") end++;
    if (!runs.has(end - at)) runs.set(end - at, { starts: [], next: 0 });
    runs.get(end - at).starts.push(at);
    at = end;
  }
  return runs;
}

// For each `[` its `]`.
function matching(text) {
  const pairs = new Map();
  if (!text.includes("](")) return pairs;
  const open = [];
  for (let n = 0; n < text.length; n++) {
    if (text[n] === "\\") n++;
    else if (text[n] === "[") open.push(n);
    else if (text[n] === "]" && open.length) pairs.set(open.pop(), n);
  }
  return pairs;
}

function readLink(text, at, brackets) {
  const middle = brackets.get(at);
  if (middle === undefined || text[middle + 1] !== "(") return null;
  let level = 1, end = middle + 2;
  // Longer ones are no addresses.
  const last = Math.min(text.length, end + 2048);
  for (; end < last; end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === "(") level++;
    else if (text[end] === ")" && --level === 0) break;
    else if (text[end] === "\n") return null;
  }
  if (level !== 0) return null;
  const [, angled, bare] = /^\s*(?:<([^<>]*)>|(\S*))(?:\s+["'(].*["')])?\s*$/.exec(text.slice(middle + 2, end)) ?? [];
  const address = angled ?? bare;
  return address === undefined ? null : { label: text.slice(at + 1, middle), address, end: end + 1 };
}

// Gives marks of emphasis their pairs, as CommonMark does: the nearest opener of the same kind.
function emphasise(nodes) {
  const openers = { "*": [], "_": [], "~": [] };
  // Elements that are not closed yet hold the nodes after their mark.
  const frames = [{ children: [] }];
  const top = () => frames[frames.length - 1];
  const unwind = (depth) => {
    // What nothing closed was text.
    while (frames.length > depth) {
      const frame = frames.pop();
      openers[frame.mark].pop();
      top().children.push(frame.mark.repeat(frame.length), ...frame.children);
    }
  };
  for (const node of nodes) {
    if (typeof node === "string" || node instanceof Node) { top().children.push(node); continue; }
    let { mark, length, opens, closes } = node;
    while (closes && length > 0) {
      const at = openers[mark].at(-1);
      if (at === undefined) break;
      unwind(at + 1);
      const frame = frames[at];
      const used = Math.min(frame.length, length, 2);
      const tag = mark === "~" ? "del" : used === 2 ? "strong" : "em";
      const element = el(tag, {}, frame.children);
      length -= used;
      frame.length -= used;
      if (frame.length === 0) {
        frames.pop();
        openers[mark].pop();
        top().children.push(element);
      } else frame.children = [element];
    }
    if (length === 0) continue;
    if (opens && frames.length < 64) {
      openers[mark].push(frames.length);
      frames.push({ mark, length, children: [] });
    } else top().children.push(mark.repeat(length));
  }
  unwind(1);
  return top().children;
}

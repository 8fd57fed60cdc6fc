// Making elements, telling people things, and writing numbers for them.

export const $ = (id) => document.getElementById(id);

// Makes an element. Children are elements or texts; nothing is ever read as markup.
export function el(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((it) => it !== undefined && it !== null && it !== false));
  return element;
}

const ICONS = {
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  plus: "M12 5v14M5 12h14",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  retry: "M19 12a7 7 0 1 1-2-5l2 2M19 4v5h-5",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  more: "M5 12h.01M12 12h.01M19 12h.01",
  image: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M15 9h.01",
  down: "M12 5v14M6 13l6 6 6-6",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
  tune: "M4 8h9M17 8h3M4 16h3M11 16h9M13 6v4M9 14v4",
  theme: "M12 3a9 9 0 1 0 9 9 7 7 0 0 1-9-9z",
  keys: "M3 7h18v10H3zM7 11h.01M11 11h.01M15 11h.01M8 14h8",
};

export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon-" + name);
  svg.append(path);
  return svg;
}

// A button that is nothing but an icon; its label is read and shown as a hint.
export function iconButton(name, label, act, props = {}) {
  return el("button", { type: "button", class: "icon", title: label, "aria-label": label, onclick: act, ...props }, icon(name));
}

export function button(label, act, props = {}) {
  return el("button", { type: "button", onclick: act, ...props }, label);
}

// ---- telling ----

let hiding = 0;
export function notice(text, action) {
  const box = $("notice");
  clearTimeout(hiding);
  box.replaceChildren(el("span", {}, text));
  if (action) box.append(button(action.label, () => { box.hidden = true; action.run(); }));
  box.append(iconButton("close", "Dismiss", () => { box.hidden = true; }));
  box.hidden = false;
  hiding = setTimeout(() => { box.hidden = true; }, 12000);
}

// For screen readers alone.
export function say(text) {
  const region = $("said");
  region.textContent = "";
  // A text that is there already would not be read again.
  setTimeout(() => { region.textContent = text; }, 50);
}

// Shows a dialog; the promise has the value of the button that closed it, or "".
export function dialog(title, body, buttons = [], props = {}) {
  const box = $("dialog");
  if (box.open) box.close("");
  const form = el("form", { method: "dialog" });
  form.append(el("h2", { id: "dialog-title" }, title), ...[body].flat().filter(Boolean));
  const row = el("div", { class: "row end" });
  for (const { label, value, kind } of buttons) {
    row.append(el("button", { value, class: kind ?? "", type: value === "" ? "button" : "submit", onclick: value === "" ? () => box.close("") : undefined }, label));
  }
  form.append(row);
  box.className = props.class ?? "";
  box.replaceChildren(form);
  box.returnValue = "";
  return new Promise((done) => {
    const closed = () => {
      // The event of the dialog before comes late, when this one is shown already.
      if (form.isConnected && box.open) return;
      box.removeEventListener("close", closed);
      done(form.isConnected ? box.returnValue : "");
    };
    box.addEventListener("close", closed);
    box.showModal();
    (box.querySelector("[autofocus]") ?? row.lastElementChild)?.focus();
  });
}

export async function confirm(title, text, yes) {
  const answer = await dialog(title, el("p", {}, text), [
    { label: "Cancel", value: "" },
    { label: yes, value: "yes", kind: "danger" },
  ]);
  return answer === "yes";
}

export async function ask(title, label, value) {
  const input = el("input", { type: "text", value, "aria-label": label, autofocus: true, maxLength: 200 });
  const answer = await dialog(title, input, [
    { label: "Cancel", value: "" },
    { label: "Save", value: "yes", kind: "main" },
  ]);
  return answer === "yes" ? input.value.trim() : null;
}

export async function copy(text, trigger) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Plain http on a network has no clipboard of the newer kind.
    const area = el("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    trigger?.focus();
  }
  say(done ? "Copied" : "Copying is not allowed here");
  if (!trigger) return;
  trigger.classList.add(done ? "done" : "failed");
  setTimeout(() => trigger.classList.remove("done", "failed"), 1600);
}

export function download(name, kind, text) {
  const address = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// ---- numbers ----

export function bytes(n) {
  if (!Number.isFinite(n) || n < 0) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (n >= 999.5 && unit < units.length - 1) { n /= 1000; unit += 1; }
  return (unit === 0 || n >= 99.5 ? n.toFixed(0) : n.toPrecision(n >= 9.995 ? 3 : 2)) + " " + units[unit];
}

export const count = (n) => Math.round(n).toLocaleString("en-US");

export function seconds(s) {
  if (!Number.isFinite(s)) return "";
  if (s < 1) return Math.round(s * 1000) + " ms";
  if (s < 60) return s.toFixed(1) + " s";
  if (s < 3600) s = Math.round(s);
  if (s < 3600) return Math.floor(s / 60) + " min " + s % 60 + " s";
  return s < 172800 ? (s / 3600).toFixed(1) + " h" : Math.round(s / 86400) + " days";
}

export function ago(moment) {
  const days = Math.floor((Date.now() - moment) / 86400000);
  if (days < 1) return new Date(moment).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return new Date(moment).toLocaleDateString([], { day: "numeric", month: "short", year: days > 300 ? "numeric" : undefined });
}

// `qwen3:latest` is called `qwen3`.
export const short = (name) => name.replace(/:latest$/, "");

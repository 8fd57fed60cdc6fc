// The dialog with what a conversation asks for besides its messages.

import { dialog, el } from "./dom.js";

// Names of options as the server knows them; nothing written: the model's own value.
const NUMBERS = [
  ["temperature", "Temperature", { min: "0", max: "5", step: "any", placeholder: "0.8" }, "0 always takes the most likely token"],
  ["num_ctx", "Context", { min: "4", max: "10000000", step: "1", placeholder: "the model’s" }, "tokens"],
  ["num_predict", "Longest answer", { min: "1", max: "10000000", step: "1", placeholder: "no limit" }, "tokens"],
  ["seed", "Seed", { min: "0", max: "9007199254740991", step: "1", placeholder: "random" }, "the same seed gives the same text"],
];
const THINKING = [["", "As the model likes"], ["off", "Off"], ["on", "On"], ["low", "Low"], ["medium", "Medium"], ["high", "High"]];

export const isChanged = (chat) => Boolean(chat.system.trim()) || Object.values(chat.options).some((value) => value !== "" && value !== null && value !== undefined);

// Changes the options of a conversation; false if nobody saved them.
export async function editOptions(chat, model) {
  const system = el("textarea", { rows: "4", name: "system", autofocus: true });
  system.value = chat.system;
  const inputs = NUMBERS.map(([name, , attributes]) => el("input", { type: "number", inputmode: "decimal", name, ...attributes, value: String(chat.options[name] ?? "") }));
  const think = el("select", { name: "think" }, THINKING.map(([value, label]) => el("option", { value }, label)));
  think.value = chat.options.think ?? "";
  const tools = el("textarea", { rows: "3", name: "tools", spellcheck: "false", class: "mono", placeholder: '[{"type": "function", "function": {"name": "…"}}]' });
  tools.value = chat.options.tools ?? "";
  tools.addEventListener("input", () => tools.setCustomValidity(toolsProblem(tools.value)));
  tools.setCustomValidity(toolsProblem(tools.value));
  const can = (what) => model?.capabilities.includes(what);
  const body = [
    el("label", {}, "System prompt", system),
    el("div", { class: "grid" }, NUMBERS.map(([, label, , hint], n) => el("label", {}, label, inputs[n], el("small", {}, hint)))),
    can("thinking") ? el("label", {}, "Thinking", think) : null,
    can("tools") ? el("label", {}, "Tools the model may call (JSON)", tools, el("small", {}, "Calls are shown, and you answer them.")) : null,
  ];
  const answer = await dialog("Options of this conversation", body, [
    { label: "Cancel", value: "" },
    { label: "Save", value: "yes", kind: "main" },
  ], { class: "wide" });
  if (answer !== "yes") return false;
  chat.system = system.value;
  const options = { ...chat.options, think: think.value, tools: tools.value.trim() };
  NUMBERS.forEach(([name], n) => { options[name] = inputs[n].value === "" ? "" : Number(inputs[n].value); });
  chat.options = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== ""));
  return true;
}

function toolsProblem(text) {
  if (!text.trim()) return "";
  try {
    const tools = JSON.parse(text);
    return Array.isArray(tools) && tools.every((tool) => typeof tool?.function?.name === "string") ? "" : "A list of tools, each with function.name";
  } catch {
    return "This is no JSON.";
  }
}

// The members of a request that come from the options; what the model cannot do is left out.
export function forRequest(chat, model) {
  const members = { options: {} };
  for (const [name] of NUMBERS) if (Number.isFinite(chat.options[name])) members.options[name] = chat.options[name];
  const { think, tools } = chat.options;
  if (think && model?.capabilities.includes("thinking")) members.think = think === "on" ? true : think === "off" ? false : think;
  if (tools && model?.capabilities.includes("tools") && !toolsProblem(tools)) members.tools = JSON.parse(tools);
  return members;
}

// One message as it is shown.

import { Renderer } from "./markdown.js";
import { copy, count, el, icon, iconButton, seconds } from "./dom.js";

const NAMES = { user: "You", assistant: "Assistant", tool: "Result of the tool" };

// `actions`: what may be done with a message: place, branch(step); edit and retry, or null.
export class MessageView {
  #body;
  #markdown;
  #thinking = null;
  #thought = 0;
  #foot;
  #label;

  constructor(node, actions) {
    this.node = node;
    this.actions = actions;
    const isAnswer = node.role === "assistant";
    this.#body = el("div", { class: isAnswer ? "text md" : "text plain" });
    this.#foot = el("div", { class: "foot" });
    this.#label = isAnswer && node.model ? node.model.replace(/:latest$/, "") : NAMES[node.role];
    this.element = el("article", { class: "message " + node.role, "aria-label": this.#label, tabindex: "-1" });
    if (isAnswer) {
      this.#markdown = new Renderer(this.#body);
      this.element.append(el("div", { class: "who" }, this.#label));
    }
    if (node.role === "tool") this.element.append(el("div", { class: "who" }, "Result of " + (node.tool_name || "the tool")));
    if (node.images?.length) {
      this.element.append(el("div", { class: "pictures" }, node.images.map((it, n) => el("img", { src: "data:" + it.kind + ";base64," + it.data, alt: "Image " + (n + 1), loading: "lazy" }))));
    }
    this.element.append(this.#body, this.#foot);
  }

  // Shows what the node holds now. Not whole: more will come.
  update(isWhole) {
    const node = this.node;
    if (node.role !== "assistant") {
      this.#body.textContent = node.content;
      this.#finish();
      return;
    }
    if (node.thinking) this.#showThinking(isWhole);
    this.element.classList.toggle("coming", !isWhole);
    this.element.classList.toggle("waiting", !isWhole && !node.content && !node.thinking);
    if (node.content || isWhole) this.#markdown.update(node.content, isWhole);
    if (isWhole) this.#finish();
  }

  // What happens before the first token comes.
  waitsFor(text) {
    this.#body.dataset.waits = text;
  }

  #showThinking(isWhole) {
    const node = this.node;
    if (!this.#thinking) {
      const text = document.createTextNode("");
      const summary = el("summary", {}, "Thinking …");
      this.#thinking = { text, summary };
      this.#body.before(el("details", { class: "thinking" }, summary, el("div", { class: "plain" }, text)));
    }
    // Only what is new.
    this.#thinking.text.appendData(node.thinking.slice(this.#thought));
    this.#thought = node.thinking.length;
    if (node.content || isWhole) this.#thinking.summary.textContent = node.stats?.thought ? "Thought for " + seconds(node.stats.thought) : "Thoughts";
  }

  #finish() {
    const node = this.node;
    for (const old of this.element.querySelectorAll(":scope > .call, :scope > .note")) old.remove();
    for (const call of node.tool_calls ?? []) {
      this.#foot.before(el("div", { class: "call" },
        el("div", {}, "Calls ", el("strong", {}, call.function.name)),
        el("pre", { tabindex: "0", "aria-label": "Arguments" }, JSON.stringify(call.function.arguments, null, 2))));
    }
    const note = (text, kind = "") => this.#foot.before(el("p", { class: "note " + kind }, text));
    if (node.error) note(node.error, "bad");
    else if (node.stopped) note("Stopped");
    else if (node.unfinished) note("This answer is not finished.");
    if (node.stats?.truncated) note(count(node.stats.truncated) + " tokens of the conversation did not fit into the context and were left out.", "warn");
    if (node.stats?.reason === "length") note("The answer reached its limit of tokens.", "warn");
    this.#tools();
  }

  #tools() {
    const { node, actions } = this;
    this.#foot.replaceChildren();
    const copying = iconButton("copy", "Copy", () => copy(node.content, copying));
    const row = [];
    const { index, total } = actions.place(node);
    if (total > 1) {
      row.push(el("span", { class: "branches" },
        iconButton("left", "Earlier version", () => actions.branch(node, -1), { disabled: index === 0 }),
        el("span", { "aria-label": "Version " + (index + 1) + " of " + total }, index + 1 + "/" + total),
        iconButton("right", "Later version", () => actions.branch(node, 1), { disabled: index === total - 1 })));
    }
    if (node.content) row.push(copying);
    if (node.role === "user" && actions.edit) row.push(iconButton("edit", "Edit", () => this.edit()));
    if (node.role === "assistant" && actions.retry) row.push(iconButton("retry", "Try again", () => actions.retry(node)));
    const stats = this.#stats();
    this.#foot.append(...row, ...(stats ? [el("span", { class: "stats" }, stats)] : []));
  }

  #stats() {
    const { stats } = this.node;
    if (!stats) return "";
    const parts = [];
    if (stats.tokens > 1 && stats.nanos > 0) parts.push(rate(stats.tokens / stats.nanos * 1e9) + " tok/s");
    if (stats.tokens) parts.push(count(stats.tokens) + (stats.tokens === 1 ? " token" : " tokens"));
    if (stats.first) parts.push(seconds(stats.first) + " to the first token");
    return parts.join(" · ");
  }

  // A field in the place of the text; what it sends becomes another version.
  edit() {
    if (this.element.querySelector(".editing")) return;
    const field = el("textarea", { "aria-label": "Edit the message", rows: String(Math.min(12, this.node.content.split("\n").length + 1)) });
    field.value = this.node.content;
    const close = () => { box.remove(); this.#body.hidden = false; this.#foot.hidden = false; };
    const send = () => { const text = field.value.trim(); if (!text) return; close(); this.actions.edit(this.node, text); };
    const box = el("div", { class: "editing" }, field, el("div", { class: "row end" },
      el("button", { type: "button", onclick: () => { close(); this.element.focus(); } }, "Cancel"),
      el("button", { type: "button", class: "main", onclick: send }, "Send")));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); close(); this.element.focus(); }
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    });
    this.#body.hidden = true;
    this.#foot.hidden = true;
    this.#body.after(box);
    field.focus();
  }
}

const rate = (n) => (n < 100 ? n.toFixed(1) : count(n));

// Fields for the results of tools that a model has called.
export function resultsForm(node, send) {
  const fields = node.tool_calls.map((call) => el("label", {}, "Result of " + call.function.name, el("textarea", { rows: "2" })));
  const form = el("form", { class: "results" }, fields, el("div", { class: "row end" }, el("button", { class: "main" }, icon("send"), "Send the results")));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(node.tool_calls.map((call, n) => ({ role: "tool", content: fields[n].querySelector("textarea").value, tool_name: call.function.name, tool_call_id: call.id })));
  });
  return form;
}

// The pane that shows what the server does: figures of /metrics and /api/ps and the latest requests, every two
// seconds while somebody looks.

import * as api from "./api.js";
import { bytes, count, el, seconds, short } from "./dom.js";

const EVERY = 2000;
const KEPT = 150;
// Requests in the table.
const REQUESTS = 25;

let app;
let root = null, timer = 0;
const series = { generated: [], prompt: [] };
let before = null;

export function setUp(shared) { app = shared; }

export function open(main) {
  root = el("div", { class: "page" });
  main.replaceChildren(root);
  root.append(el("header", { class: "top" }, app.menuButton(), el("h2", {}, "Machine")));
  if (!api.mayManage()) {
    root.append(app.mayNot("The figures of the server"));
    return;
  }
  const body = el("div", { class: "inner" }, el("p", { class: "hint" }, "Reading the figures"));
  root.append(el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Figures" }, body));
  before = null;
  clearTimeout(timer);
  look(body);
}

async function look(body) {
  if (!body.isConnected) return;
  if (!document.hidden) {
    try {
      const [text, ps, latest] = await Promise.all([api.request("metrics").then((it) => it.text()), api.get("api/ps"), api.get("api/requests")]);
      if (body.isConnected) draw(body, parse(text), ps, latest.requests);
    } catch (error) {
      if (body.isConnected) body.replaceChildren(el("p", { class: "note bad" }, error.message));
      before = null;
    }
  }
  clearTimeout(timer);
  timer = setTimeout(() => look(body), EVERY);
}

// Samples of Prometheus' text form: name, labels and value of each.
export function parse(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    samples.push({ name: match[1], labels, value: match[3] === "+Inf" ? Infinity : Number(match[3]) });
  }
  return samples;
}

function draw(body, samples, ps, latest) {
  const named = (name) => samples.filter((it) => it.name === "llmsrv_" + name || it.name === name);
  const sum = (name, keep = () => true) => named(name).filter(keep).reduce((total, it) => total + it.value, 0);
  const now = { at: performance.now(), generated: sum("generated_tokens_total"), prompt: sum("prompt_tokens_total") - sum("prefix_cache_hit_tokens_total") };
  const rate = {};
  for (const name of ["generated", "prompt"]) {
    // A server that was started anew counts from zero.
    rate[name] = before && now[name] >= before[name] ? (now[name] - before[name]) / (now.at - before.at) * 1000 : 0;
    if (before) series[name].push(rate[name]);
    if (series[name].length > KEPT) series[name].shift();
  }
  before = now;
  const taken = sum("models_memory_bytes"), limit = sum("models_memory_limit_bytes");
  const tiles = [
    tile("Decode", rate.generated.toFixed(rate.generated < 10 ? 1 : 0) + " tok/s", spark(series.generated)),
    tile("Prefill", rate.prompt.toFixed(rate.prompt < 10 ? 1 : 0) + " tok/s", spark(series.prompt)),
    tile("Requests", count(sum("model_sequences", (it) => it.labels.state === "running")) + " running", el("small", {}, count(sum("queue_length") + sum("model_sequences", (it) => it.labels.state === "waiting")) + " waiting")),
    tile("Memory for models", bytes(taken), el("progress", { max: "1", value: String(limit ? Math.min(1, taken / limit) : 0), "aria-label": "Memory for models" }), el("small", {}, "of " + bytes(limit) + "; process: " + bytes(sum("process_resident_memory_bytes")))),
  ];
  const models = ps.models.map((model) => {
    const of = (name) => sum(name, (it) => it.labels.model === model.name || it.labels.model === short(model.name));
    const left = (new Date(model.expires_at) - Date.now()) / 1000;
    return [short(model.name), bytes(of("model_weights_bytes") || model.size), bytes(of("model_kv_cache_used_bytes")) + " of " + bytes(of("model_kv_cache_bytes")), count(model.context_length), left > 366 * 86400 ? "stays" : left > 0 ? "in " + seconds(left) : "now"];
  });
  const first = quantiles(named("time_to_first_token_seconds_bucket")), between = quantiles(named("inter_token_seconds_bucket")), waits = quantiles(named("queue_wait_seconds_bucket"));
  const started = named("process_start_time_seconds")[0]?.value;
  const totals = [
    ["Answers", count(sum("answers_total", (it) => it.labels.outcome === "done")) + " done, " + count(sum("answers_total", (it) => it.labels.outcome !== "done")) + " failed or stopped"],
    ["Tokens", count(now.generated) + " generated, " + count(sum("prompt_tokens_total")) + " of prompts, " + count(sum("prefix_cache_hit_tokens_total")) + " of them from the prefix cache"],
    ["Requests", count(sum("http_requests_total")) + " answered, " + count(sum("refused_requests_total")) + " refused"],
    ["Running since", started ? new Date(started * 1000).toLocaleString() : ""],
  ].filter(([, value]) => value);
  body.replaceChildren(
    el("div", { class: "tiles" }, tiles),
    el("h3", {}, "Loaded models"),
    models.length ? table(["Model", "Weights", "KV cache", "Context", "Unloads"], models) : el("p", { class: "hint" }, "No model is loaded. The first question loads one."),
    el("h3", {}, "Latency"),
    table(["", "Median", "95th percentile"], [["Time to first token", ...first], ["Between two tokens", ...between], ["Queue wait", ...waits]]),
    el("h3", {}, "Since the start"),
    el("dl", {}, totals.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    el("h3", {}, "Latest requests"),
    latest.length ? table(["Ended", "Request", "Status", "Took", "Answer", "From"], latest.slice(0, REQUESTS).map((it) => [
      new Date(it.ended_at).toLocaleTimeString(), it.method + " " + it.path, it.status === 499 ? "client left" : String(it.status),
      seconds(it.milliseconds / 1000), bytes(it.bytes), [it.client, it.key].filter(Boolean).join(", ")])) : el("p", { class: "hint" }, "None yet."));
}

const tile = (title, value, ...rest) => el("section", { class: "tile", "aria-label": title }, el("h3", {}, title), el("p", {}, value), ...rest);

function table(head, rows) {
  return el("div", { class: "table" }, el("table", {}, el("thead", {}, el("tr", {}, head.map((it) => (it ? el("th", { scope: "col" }, it) : el("td", {}))))),
    el("tbody", {}, rows.map((cells) => el("tr", {}, cells.map((it, n) => (n ? el("td", {}, it) : el("th", { scope: "row" }, it))))))));
}

// Median and 95th percentile of a histogram, as bounds of its buckets.
export function quantiles(buckets) {
  const sums = new Map();
  for (const { labels, value } of buckets) {
    const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
    sums.set(bound, (sums.get(bound) ?? 0) + value);
  }
  const steps = [...sums].sort(([a], [b]) => a - b);
  const total = steps.at(-1)?.[1] ?? 0;
  return [0.5, 0.95].map((part) => {
    if (!total) return "—";
    const bound = steps.find(([, n]) => n >= total * part)[0];
    return bound === Infinity ? "more than " + seconds(steps.at(-2)?.[0] ?? 0) : precise(bound);
  });
}

const precise = (s) => (s < 0.01 ? (s * 1000).toPrecision(2) + " ms" : seconds(s));

function spark(values) {
  const most = Math.max(...values, 1);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 " + (KEPT - 1) + " 30");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(svg.namespaceURI, "polyline");
  line.setAttribute("points", values.map((value, n) => KEPT - values.length + n + "," + (29 - value / most * 28).toFixed(1)).join(" "));
  svg.append(line);
  return svg;
}

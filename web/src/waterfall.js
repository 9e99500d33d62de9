// waterfall: where the time of the last requests went, step by step, on one axis of time; whose chunk cost whom how much.

import { by, color, context2d, count, element, ms, percent, setText, table } from "./format.js";
import { stepsBetween, store } from "./feed.js";

const ROW = 26, BAR = 16, AXIS = 22;
const MAX_ROWS = 14;
const GAP_US = 300; // between two chunks, so that each can be seen

export const KINDS = [
  ["prepare", "read, template, tokenize"], ["queue", "queue"], ["cached", "found in the cache"], ["prefill", "its prefill chunks"],
  ["interference", "others' chunks"], ["decode", "decode"],
];

let selected = null; // key of a request
let awaited = null; // id of one to select when the server tells of it
let frozenAt = null; // µs, while paused

function keyOf(request) {
  return `${request.id}/${request.run}`;
}

function endOf(request, now) {
  return request.ended_us ?? now;
}

// How long others' prompts held this request up in a step, and each one's share of that.
function blame(step, own, lost, into) {
  const others = step.parts.filter((part) => part.run !== own);
  const total = others.reduce((sum, part) => sum + part.rows, 0) + step.other_rows;
  if (!total) return;
  const share = (part) => (lost * part.rows) / total;
  for (const part of others) {
    const entry = into.get(part.run) || { us: 0, chunks: 0, rows: 0 };
    entry.us += share(part);
    entry.chunks += 1;
    entry.rows += part.rows;
    into.set(part.run, entry);
  }
  if (step.other_rows) {
    const entry = into.get(0) || { us: 0, chunks: 0, rows: 0 };
    entry.us += (lost * step.other_rows) / total;
    entry.chunks += step.others;
    entry.rows += step.other_rows;
    into.set(0, entry);
  }
}

// Segments [kind, from, to] of a request, in order, and who held it up: of what is known of the steps.
export function trace(request, now) {
  const segments = [], blamed = new Map();
  const end = endOf(request, now), submitted = request.submitted_us ?? end;
  const start = request.prefill_start_us ?? end, first = request.first_token_us ?? end;
  let interference = 0, chunks = 0;
  segments.push(["prepare", request.received_us, submitted]);
  if (start > submitted) segments.push(["queue", submitted, start]);
  if (request.prefill_start_us === null || request.prefill_start_us === undefined) return { segments, blamed, interference, chunks };
  if (request.first_token_us !== null && end > first) segments.push(["decode", first, end]);
  for (const step of stepsBetween(submitted, end)) {
    const from = Math.max(step.start_us, submitted), to = Math.min(step.start_us + step.took_us, end);
    const own = step.parts.find((part) => part.run === request.run);
    if (to <= from) continue;
    if (own && from < first) {
      chunks++;
      segments.push(["prefill", from, Math.max(from + 1, Math.min(to, first) - GAP_US)]);
      // A step that two prompts share is longer for both.
      const rows = step.prefill_rows || 1, lost = (to - from) * (1 - own.rows / rows);
      if (lost > 0 && own.rows < rows) {
        interference += lost;
        blame(step, request.run, lost, blamed);
        segments.push(["interference", Math.max(from, to - lost), to]);
      }
    } else if (step.prefill_rows && from >= start) {
      const lost = from < first ? to - from : Math.max(0, (to - from) - step.decode_us);
      if (from < first && step.others && !own) continue; // it may be one of those that are not named
      interference += lost;
      blame(step, request.run, lost, blamed);
      segments.push(["interference", to - lost, to]);
    }
  }
  return { segments, blamed, interference, chunks };
}

function visible(now, span) {
  const all = [...store.ended, ...store.running].filter((r) => endOf(r, now) >= now - span * 1e6);
  return all.sort((a, b) => b.received_us - a.received_us || b.run - a.run).slice(0, MAX_ROWS);
}

// The axis ends now, or, when nobody runs any more, a little after the last one ended: a picture of nothing tells nothing.
function axisEnd(span) {
  const now = store.server.now_us, last = store.ended[store.ended.length - 1];
  if (frozenAt !== null) return frozenAt;
  return store.running.length || !last ? now : Math.min(now, last.ended_us + span * 1e5);
}

export function shortId(id) {
  const bare = id.replace(/^(chatcmpl|cmpl|msg|resp|embd|warm)[-_]/, "");
  return bare.length > 18 ? `${bare.slice(0, 8)}…${bare.slice(-4)}` : bare;
}

function ttftOf(request) {
  return request.first_token_us ? (request.first_token_us - request.received_us) / 1000 : null;
}

function describe(request, now) {
  const ttft = ttftOf(request), tokens = request.prompt_tokens ? `${count(request.prompt_tokens)} prompt tokens` : request.state;
  return `${request.id}, ${tokens}, ${ttft === null ? "no token yet" : `first token after ${ms(ttft)}`}, ` +
    `${request.state}, ${ms((endOf(request, now) - request.received_us) / 1000)} in all`;
}

function labelOf(request) {
  const button = element("button", { type: "button", onclick: () => select(keyOf(request)) },
    element("span", { class: "name" }), element("span", { class: "time" }));
  button.addEventListener("keydown", (event) => {
    const to = { ArrowDown: button.nextElementSibling, ArrowUp: button.previousElementSibling }[event.key];
    if (!to) return;
    event.preventDefault();
    to.focus();
  });
  return button;
}

const labels = new Map(); // key -> button, kept so that the focus stays

function drawLabels(requests, now) {
  const wanted = requests.map((request) => {
    const key = keyOf(request), ttft = ttftOf(request);
    if (!labels.has(key)) labels.set(key, labelOf(request));
    const button = labels.get(key);
    setText(button.firstChild, shortId(request.id));
    setText(button.lastChild, request.state === "refused" ? "refused" : ttft === null ? request.state : ms(ttft));
    button.setAttribute("aria-pressed", String(key === selected));
    button.setAttribute("aria-label", describe(request, now));
    button.title = request.id;
    return button;
  });
  const box = by("row-labels");
  if (wanted.length !== box.children.length || wanted.some((button, i) => box.children[i] !== button)) {
    const focused = document.activeElement;
    box.replaceChildren(...(wanted.length ? wanted : [element("p", { class: "dim" }, "No request within this span.")]));
    if (wanted.includes(focused)) focused.focus();
  }
  for (const key of labels.keys()) if (!requests.some((request) => keyOf(request) === key)) labels.delete(key);
}

function hatch(context) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.fillStyle = color("interference");
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = color("panel");
  pen.lineWidth = 1.2;
  pen.beginPath();
  for (const at of [-6, 0, 6]) {
    pen.moveTo(at, 6);
    pen.lineTo(at + 6, 0);
  }
  pen.stroke();
  return context.createPattern(tile, "repeat");
}

function endText(end) {
  const ago = (store.server.now_us - end) / 1e6;
  if (frozenAt !== null) return "paused";
  if (ago < 0.5) return "now";
  return ago < 100 ? `${ago.toFixed(0)} s ago` : `${(ago / 60).toFixed(0)} min ago`;
}

function drawAxis(context, width, height, now, span) {
  const marks = width < 420 ? 3 : 6;
  context.font = "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
  context.fillStyle = color("dim");
  context.strokeStyle = color("line");
  context.lineWidth = 1;
  for (let i = 0; i <= marks; i++) {
    const x = Math.min(width - 0.5, Math.round((width * i) / marks) + 0.5), seconds = span * (1 - i / marks);
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height - AXIS);
    context.stroke();
    context.textAlign = i === 0 ? "left" : i === marks ? "right" : "center";
    const text = i === marks ? endText(now) : seconds >= 60 ? `−${+(seconds / 60).toFixed(1)} min` : `−${+seconds.toFixed(1)} s`;
    context.fillText(text, x, height - 6);
  }
}

function drawRow(context, request, y, x, patterns, now) {
  const traced = trace(request, now), top = y + (ROW - BAR) / 2;
  for (const [kind, from, to] of traced.segments) {
    const left = x(from), width = Math.max(x(to) - left, kind === "prefill" || kind === "interference" ? 1 : 0.5);
    context.fillStyle = patterns[kind];
    // Beside decode, which goes on, it takes the lower half.
    const isBeside = kind === "interference" && from >= (request.first_token_us ?? Infinity);
    context.fillRect(left, isBeside ? top + BAR / 2 : top, width, isBeside ? BAR / 2 : BAR);
  }
  if (request.cached_tokens && request.prefill_start_us) {
    const left = x(request.prefill_start_us), share = request.cached_tokens / request.prompt_tokens;
    const width = Math.max(3, (x(request.first_token_us ?? now) - left) * share);
    context.fillStyle = patterns.cached;
    context.fillRect(left, top + BAR - 4, width, 4);
  }
  if (request.first_token_us) {
    context.fillStyle = color("text");
    context.fillRect(x(request.first_token_us) - 1, top - 3, 2, BAR + 6);
  }
}

export function draw() {
  if (!store.server) return;
  takeAwaited();
  const span = Number(by("span").value), now = axisEnd(span), requests = visible(now, span);
  const canvas = by("waterfall"), height = Math.max(4, requests.length) * ROW + AXIS, context = context2d(canvas, height);
  drawLabels(requests, now);
  if (!context) return;
  const width = canvas.clientWidth, x = (at) => Math.max(0, Math.min(width, width * (1 - (now - at) / (span * 1e6))));
  const patterns = Object.fromEntries(KINDS.map(([kind]) => [kind, kind === "interference" ? hatch(context) : color(kind)]));
  drawAxis(context, width, height, now, span);
  requests.forEach((request, i) => {
    if (keyOf(request) === selected) {
      context.fillStyle = color("bg");
      context.fillRect(0, i * ROW, width, ROW);
    }
    drawRow(context, request, i * ROW, x, patterns, now);
  });
  drawDetail(now);
}

function nameOf(run) {
  const request = store.byRun.get(run);
  if (!run) return "others";
  return request ? request.id : `request ${run}`;
}

// The server's phases, and the part of decode that others' chunks took.
function phaseRows(request) {
  const names = store.server.phase_names, total = request.phases_us.reduce((sum, us) => sum + us, 0) || 1;
  return names.map((name, i) => [name, request.phases_us[i]]).filter(([, us]) => us >= 1)
    .map(([name, us]) => [name.replace("_", " "), ms(us / 1000), percent(us / total)]);
}

function sentence(request, traced) {
  const ttft = ttftOf(request), parts = [];
  if (ttft !== null) parts.push(`First token after ${ms(ttft)}${request.predicted_us ? `, promised ${ms((request.predicted_us - request.received_us) / 1000)}` : ""}.`);
  if (request.prompt_tokens) parts.push(`${count(request.prompt_tokens)} prompt tokens, ${count(request.cached_tokens)} found in the cache; ${count(request.output_tokens)} answered.`);
  if (traced.chunks) parts.push(`${traced.chunks} ${traced.chunks === 1 ? "chunk" : "chunks"} of its own.`);
  if (traced.interference > 1000) {
    const worst = [...traced.blamed].sort((a, b) => b[1].us - a[1].us)[0];
    parts.push(`Chunks of others cost it ${ms(traced.interference / 1000)}, most of all ${nameOf(worst[0])}.`);
  }
  return parts.join(" ");
}

let shown = "";

function drawDetail(now) {
  const box = by("request-detail");
  const request = [...store.running, ...store.ended].find((r) => keyOf(r) === selected);
  if (!request) {
    if (shown !== "none") box.replaceChildren(element("p", { class: "dim" }, "Choose a request to see its phases, and whose chunks it waited for."));
    shown = "none";
    return;
  }
  const state = `${selected} ${request.state}`;
  box.setAttribute("aria-live", state === shown ? "off" : "polite"); // told once, not every second
  if (state === shown && request.state === "finished") return;
  shown = state;
  const traced = trace(request, now);
  const blamed = [...traced.blamed].sort((a, b) => b[1].us - a[1].us).slice(0, 6)
    .map(([run, entry]) => [element("span", { class: "id" }, nameOf(run)), count(entry.chunks), count(entry.rows), ms(entry.us / 1000)]);
  box.replaceChildren(
    element("p", {}, element("span", { class: "id" }, request.id), ` ${request.path}, ${request.class}${request.key ? `, key ${request.key}` : ""}`),
    element("p", {}, sentence(request, traced)),
    element("div", { class: "two" },
      request.phases_us ? table("Phases", ["phase", "time", "share"], phaseRows(request)) : null,
      blamed.length ? table("Whose chunks it waited for", ["request", "chunks", "tokens", "cost"], blamed) : null));
}

export function select(key) {
  awaited = null;
  selected = selected === key ? null : key;
  draw();
}

export function selectId(id) {
  awaited = id;
}

function takeAwaited() {
  const request = awaited && [...store.running, ...store.ended].find((r) => r.id === awaited && r.run);
  if (!request) return;
  selected = keyOf(request);
  awaited = null;
}

export function start() {
  by("waterfall-legend").append(...KINDS.map(([kind, text]) => element("li", {}, element("i", { class: `c-${kind}` }), text)),
    element("li", {}, "│ first token"));
  by("span").addEventListener("change", draw);
  by("pause").addEventListener("click", () => {
    frozenAt = frozenAt === null && store.server ? axisEnd(Number(by("span").value)) : null;
    by("pause").setAttribute("aria-pressed", String(frozenAt !== null));
    setText(by("pause"), frozenAt === null ? "Pause" : "Go on");
    draw();
  });
  by("waterfall").addEventListener("click", (event) => {
    const label = by("row-labels").children[Math.floor(event.offsetY / ROW)];
    if (label && label.click && label.tagName === "BUTTON") label.click();
  });
}

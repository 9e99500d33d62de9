// chat: a stream that is read here, with its phases while it runs; and what the experiments ask beside it.

import { by, color, context2d, count, element, ms, setText } from "./format.js";
import { authorization, store } from "./feed.js";
import { selectId } from "./waterfall.js";

const GAPS = 240; // that are drawn
const PARTS = [["prepare", "prepared"], ["queue", "queued"], ["prefill", "prefill"], ["interference", "held up by others"], ["decode", "decode"]];
const KIND_OF = {
  read: "prepare", preprocess: "prepare", text_queue: "prepare", template: "prepare", tokenize: "prepare", queue: "queue",
  prefill_own: "prefill", first_sample: "prefill", prefill_lost: "interference", preempted: "interference",
  transfer: "queue", decode: "decode", blocked: "queue",
};

export const reader = { id: null, isOpen: false, gaps: [], began: 0 };
let abort = null;

export function freshId(name) {
  return `${name}-${Math.random().toString(36).slice(2, 8)}`;
}

// Reads the events of one answer; on_text(text) for each piece. Resolves to {usage, ttft (ms), gaps, text}.
export async function ask(body, id, onText, signal) {
  const began = performance.now(), result = { ttft: null, gaps: [], usage: null, text: "" };
  const reply = await fetch("/v1/chat/completions", {
    method: "POST", signal,
    headers: { "Content-Type": "application/json", "x-request-id": id, ...authorization() },
    body: JSON.stringify({ stream: true, stream_options: { include_usage: true }, return_phases: true, ...body }),
  });
  if (!reply.ok) throw new Error((await reply.json()).error.message);
  const bytes = reply.body.getReader(), decoder = new TextDecoder();
  let rest = "", last = began;
  for (;;) {
    const { done, value } = await bytes.read();
    if (done) return result;
    rest += decoder.decode(value, { stream: true });
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      const event = JSON.parse(line.slice(6));
      if (event.error) throw new Error(event.error.message);
      if (event.usage) result.usage = event.usage;
      const text = event.choices?.[0]?.delta?.content;
      if (!text) continue;
      const now = performance.now();
      if (result.ttft === null) result.ttft = now - began;
      else result.gaps.push(now - last);
      last = now;
      result.text += text;
      if (onText) onText(text, result);
    }
  }
}

function showParts(phases) {
  const sums = Object.fromEntries(PARTS.map(([kind]) => [kind, 0]));
  for (const [name, value] of phases) if (KIND_OF[name]) sums[KIND_OF[name]] += value;
  const total = Object.values(sums).reduce((a, b) => a + b, 0) || 1, box = by("own-phases");
  if (!box.bar) {
    box.bar = element("div", { class: "bar", "aria-hidden": "true" }, ...PARTS.map(([kind]) => element("span", { class: `c-${kind}` })));
    box.words = element("p", { class: "words" });
    box.gaps = element("canvas", { class: "gaps", "aria-hidden": "true" });
    box.append(box.bar, box.words, box.gaps);
  }
  PARTS.forEach(([kind], i) => { box.bar.children[i].style.width = `${(100 * sums[kind]) / total}%`; });
  const usage = reader.usage?.prompt_tokens ? `, ${count(reader.usage.completion_tokens)} tokens` : "";
  setText(box.words, PARTS.filter(([kind]) => sums[kind] > 0.05).map(([kind, text]) => `${text} ${ms(sums[kind])}`).join(" · ") + usage);
}

// The gaps between what came, as bars: a freeze would be a tower.
function drawGaps() {
  const canvas = by("own-phases").gaps, context = canvas && context2d(canvas, 44);
  if (!context) return;
  const gaps = reader.gaps.slice(-GAPS), max = Math.max(40, ...gaps), width = canvas.clientWidth / GAPS;
  context.fillStyle = color("decode");
  gaps.forEach((gap, i) => context.fillRect(i * width, 44 - (34 * gap) / max, Math.max(1, width - 0.6), (34 * gap) / max));
  context.fillStyle = color("dim");
  context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
  context.fillText(`gaps between tokens, longest ${ms(Math.max(0, ...gaps))}`, 0, 9);
}

// From the feed while it runs, from its usage when it has ended.
export function draw() {
  const names = store.server?.phase_names, running = store.running.find((r) => r.id === reader.fullId);
  if (reader.isOpen && running?.phases_us) showParts(names.map((name, i) => [name, running.phases_us[i] / 1000]));
  drawGaps();
}

function phasesOf(usage) {
  return Object.entries(usage.kvick || {}).filter(([name]) => name.endsWith("_ms")).map(([name, value]) => [name.slice(0, -3), value]);
}

function setOpen(isOpen) {
  reader.isOpen = isOpen;
  by("send").disabled = isOpen;
  by("stop").disabled = !isOpen;
  by("answer").setAttribute("aria-busy", String(isOpen));
}

// isEndless: it goes on after the answer has ended, for as long as experiments want a stream beside them.
export async function send(text, maxTokens, isEndless) {
  const answer = by("answer");
  const id = freshId("chat");
  abort = new AbortController();
  Object.assign(reader, { id, fullId: `chatcmpl-${id}`, gaps: [], usage: null });
  answer.replaceChildren();
  answer.classList.remove("error");
  setOpen(true);
  setText(by("chat-status"), "waiting for the first token");
  try {
    const result = await ask({ messages: [{ role: "user", content: text }], max_tokens: maxTokens, temperature: 0.8, ignore_eos: isEndless }, id, (piece, so_far) => {
      const isAtEnd = answer.scrollTop + answer.clientHeight > answer.scrollHeight - 30;
      answer.append(piece);
      if (isAtEnd) answer.scrollTop = answer.scrollHeight;
      reader.gaps = so_far.gaps;
      if (so_far.gaps.length === 0) {
        setText(by("chat-status"), `first token after ${ms(so_far.ttft)}`);
        selectId(reader.fullId);
      }
    }, abort.signal);
    reader.usage = result.usage;
    if (result.usage) showParts(phasesOf(result.usage));
  } catch (error) {
    if (error.name !== "AbortError") {
      answer.classList.add("error");
      answer.replaceChildren(error.message);
      setText(by("chat-status"), "refused");
    } else setText(by("chat-status"), "stopped");
  }
  setOpen(false);
  drawGaps();
}

export function start() {
  by("chat").addEventListener("submit", (event) => {
    event.preventDefault();
    if (!reader.isOpen) send(by("prompt").value, 400, false);
  });
  by("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    by("chat").requestSubmit();
  });
  by("stop").addEventListener("click", () => abort?.abort());
}

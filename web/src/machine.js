// machine: both phases against what the machine can do, and what the KV blocks are used for.

import { by, color, context2d, count, element, percent, setText, table } from "./format.js";
import { store } from "./feed.js";

const NS = "http://www.w3.org/2000/svg";
const W = 980, H = 470, LEFT = 100, RIGHT = 950, TOP = 26, BOTTOM = 400;
const SPAN_US = 300e6;
const MAX_DOTS = 150;
// Hue of the legend and of the map, what it is.
const USES = [["free", "line", "free"], ["cached", "cached", "cached, reusable"], ["held", "held", "held by one request"],
  ["shared", "shared", "shared by several"], ["pinned", "pinned", "pinned"]];

function shape(tag, attributes, text) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Decode: steps without prompts. Prefill: all steps with prompts, less what their decode rows would have taken alone.
function points(phase) {
  const now = store.server.now_us, isDecode = phase === "decode";
  return store.steps.filter((s) => !s.abandoned && s[`${phase}_mb`] > 0 && now - s.start_us < SPAN_US && (!isDecode || !s.prefill_rows))
    .map((s) => ({ gflop: s[`${phase}_gflop`], mb: s[`${phase}_mb`], us: isDecode ? s.took_us : s.took_us - s.decode_us, rows: s[`${phase}_rows`] }))
    .filter((p) => p.us > 0);
}

function rate({ gflop, mb, us }) {
  return { x: (gflop * 1000) / mb, y: gflop / (us / 1e6), gbs: mb / 1000 / (us / 1e6) };
}

function sum(list) {
  return list.reduce((a, b) => ({ gflop: a.gflop + b.gflop, mb: a.mb + b.mb, us: a.us + b.us, rows: a.rows + b.rows }), { gflop: 0, mb: 0, us: 0, rows: 0 });
}

const log = Math.log10;

function draws(svg, server, phases) {
  const all = phases.flatMap((p) => [...p.points.map(rate), p.points.length ? rate(p.total) : null]).filter(Boolean);
  const peak = server.peak_gops, bandwidth = server.read_gb_s;
  const xs = [0.3, 3000, ...all.map((p) => p.x)], ys = [1, peak * 1.6 || 1000, ...all.map((p) => p.y)];
  const x0 = log(Math.min(...xs)), x1 = log(Math.max(...xs)), y0 = log(Math.min(...ys)), y1 = log(Math.max(...ys));
  const x = (v) => LEFT + ((log(v) - x0) / (x1 - x0)) * (RIGHT - LEFT), y = (v) => BOTTOM - ((log(v) - y0) / (y1 - y0)) * (BOTTOM - TOP);
  const say = (v) => (v >= 1 ? count(v) : String(v));
  for (let e = Math.ceil(x0); e <= x1; e++) {
    svg.append(shape("line", { class: "grid", x1: x(10 ** e), x2: x(10 ** e), y1: TOP, y2: BOTTOM }));
    svg.append(shape("text", { x: x(10 ** e), y: BOTTOM + 24, "text-anchor": "middle" }, say(10 ** e)));
  }
  for (let e = Math.ceil(y0); e <= y1; e++) {
    svg.append(shape("line", { class: "grid", x1: LEFT, x2: RIGHT, y1: y(10 ** e), y2: y(10 ** e) }));
    svg.append(shape("text", { x: LEFT - 10, y: y(10 ** e) + 5, "text-anchor": "end" }, say(10 ** e)));
  }
  svg.append(shape("text", { x: (LEFT + RIGHT) / 2, y: H - 10, "text-anchor": "middle" }, "FLOP for each byte read"));
  svg.append(shape("text", { x: 20, y: (TOP + BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 20 ${(TOP + BOTTOM) / 2})` }, "GFLOP a second"));
  if (peak && bandwidth) {
    const knee = peak / bandwidth, start = Math.max(10 ** x0, 10 ** y0 / bandwidth);
    svg.append(shape("path", { class: "roof", d: `M${x(start)} ${y(start * bandwidth)}L${x(knee)} ${y(peak)}L${RIGHT} ${y(peak)}` }));
    svg.append(shape("text", { x: RIGHT - 4, y: y(peak) - 9, "text-anchor": "end" }, `int8 peak ${count(peak)} GFLOP/s`));
    const at = Math.sqrt(start * knee), slope = (Math.atan2(y(knee * bandwidth) - y(start * bandwidth), x(knee) - x(start)) * 180) / Math.PI;
    svg.append(shape("text", { x: x(at), y: y(at * bandwidth) - 10, "text-anchor": "middle", transform: `rotate(${slope} ${x(at)} ${y(at * bandwidth)})` },
      `memory ${bandwidth.toFixed(1)} GB/s${server.read_is_guessed ? " (guessed)" : ""}`));
  }
  for (const { name, points: list } of phases) {
    const every = Math.max(1, Math.floor(list.length / MAX_DOTS));
    for (let i = 0; i < list.length; i += every) {
      const p = rate(list[i]);
      svg.append(shape("circle", { class: `dot ${name}`, cx: x(p.x), cy: y(p.y), r: 4 }));
    }
  }
  for (const { name, points: list, total } of phases) {
    if (!list.length) continue;
    const p = rate(total), isRight = x(p.x) > (LEFT + RIGHT) / 2;
    svg.append(shape(name === "prefill" ? "rect" : "circle", name === "prefill"
      ? { class: `mark ${name}`, x: x(p.x) - 9, y: y(p.y) - 9, width: 18, height: 18 } : { class: `mark ${name}`, cx: x(p.x), cy: y(p.y), r: 10 }));
    svg.append(shape("text", { class: "strong", x: x(p.x) + (isRight ? -16 : 16), y: y(p.y) + 26, "text-anchor": isRight ? "end" : "start" }, `${name} ${count(p.y)} GFLOP/s, ${p.gbs.toFixed(1)} GB/s`));
  }
}

function drawRoofline() {
  const server = store.server;
  const phases = ["prefill", "decode"].map((name) => ({ name, points: points(name) })).map((p) => ({ ...p, total: sum(p.points) }));
  const svg = shape("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Roofline: the same numbers are in the table below" });
  draws(svg, server, phases);
  by("roofline").replaceChildren(svg);
  const share = (value, limit) => (limit ? percent(value / limit) : "not measured");
  by("roofline-table").replaceChildren(table("As measured over five minutes", ["phase", "steps", "rows a step", "GFLOP/s", "of int8 peak", "GB/s", "of memory"],
    phases.map(({ name, points: list, total }) => {
      if (!list.length) return [name, "0", "–", "–", "–", "–", "–"];
      const p = rate(total);
      return [name, count(list.length), (total.rows / list.length).toFixed(1), p.y.toFixed(1), share(p.y, server.peak_gops), p.gbs.toFixed(1), share(p.gbs, server.read_gb_s)];
    })));
  if (!server.peak_gops) by("roofline-table").append(element("p", { class: "dim" }, "The roofs are measured where the server is started with --demo."));
}

function drawBlocks() {
  const map = store.server.map, canvas = by("blocks");
  if (!map) return;
  const n = map.cells.length / USES.length, sums = USES.map(() => 0);
  const side = n > 1200 ? 9 : n > 400 ? 12 : 18, columns = Math.max(1, Math.floor(canvas.clientWidth / side));
  const context = context2d(canvas, Math.ceil(n / columns) * side);
  if (!context) return;
  const colors = USES.map(([, hue]) => color(hue));
  for (let i = 0; i < n; i++) {
    const cell = map.cells.slice(i * USES.length, (i + 1) * USES.length), total = cell.reduce((a, b) => a + b, 0);
    const left = (i % columns) * side, top = Math.floor(i / columns) * side;
    let from = 0;
    cell.forEach((blocks, use) => {
      sums[use] += blocks;
      const height = total ? ((side - 1.5) * blocks) / total : 0;
      context.fillStyle = colors[use];
      context.fillRect(left, top + from, side - 1.5, height);
      from += height;
    });
  }
  const tokens = store.server.block_tokens;
  setText(by("blocks-note"), `${count(map.blocks)} blocks of ${tokens} tokens. ` +
    (map.cell_blocks > 1 ? `A cell is ${map.cell_blocks} blocks, coloured by how many are used for what.` : "A cell is a block."));
  by("blocks-table").replaceChildren(table("What they are used for", ["use", "blocks", "tokens", "share"],
    USES.map(([, , text], use) => [text, count(sums[use]), count(sums[use] * tokens), percent(sums[use] / map.blocks)])));
}

export function start() {
  by("blocks-legend").append(...USES.map(([hue, , text]) => element("li", {}, element("i", { class: `c-${hue}` }), text)));
}

export function draw() {
  if (!store.server) return;
  drawRoofline();
  drawBlocks();
}

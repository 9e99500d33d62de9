// charts: the last minutes as lines, each with its numbers as a table.

import uPlot from "uplot";
import { by, color, count, element, ms, percent, setText, table } from "./format.js";
import { store } from "./feed.js";

const FONT = "12px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const HEIGHT = 150;
const TABLE_ROWS = 8;
const HIT_SPAN = 30; // samples
const WHOLE = [1, 2, 5].flatMap((n) => [n, n * 10, n * 100, n * 1e3, n * 1e4, n * 1e5]).sort((a, b) => a - b); // steps of counts

function hitRate(samples, i) {
  let asked = 0, found = 0;
  for (let k = Math.max(0, i - HIT_SPAN + 1); k <= i; k++) {
    asked += samples[k].asked;
    found += samples[k].found;
  }
  return asked ? found / asked : null;
}

function quantiles(kind, hue) {
  return ["p50", "p95", "p99"].map((q, i) => ({ label: q, hue, dash: i, get: (s) => s[`${kind}_${q}`] }));
}

const charts = [
  { title: "Time to first token", unit: "over 10 s, log scale", write: ms, isLog: true, series: quantiles("ttft", "prefill") },
  { title: "Between tokens", unit: "over 10 s, log scale", write: ms, isLog: true, series: quantiles("itl", "decode") },
  { title: "Tokens a second", unit: "prompt and output apart", write: count, series: [
    { label: "prompt, computed", hue: "prefill", dash: 0, get: (s) => s.computed },
    { label: "prompt, cached", hue: "cached", dash: 1, get: (s) => s.cached },
    { label: "output", hue: "decode", dash: 0, get: (s) => s.output }] },
  { title: "Requests", unit: "now", write: count, series: [
    { label: "running", hue: "decode", dash: 0, get: (s) => s.running },
    { label: "waiting", hue: "queue", dash: 1, get: (s) => s.waiting }] },
  { title: "KV blocks", unit: "share of the pool", write: percent, max: 1, series: [
    { label: "held", hue: "prefill", dash: 0, get: (s) => s.held },
    { label: "reusable", hue: "cached", dash: 1, get: (s) => s.reusable }] },
  { title: "Prefix hit rate", unit: "of prompt tokens, over 30 s", write: percent, max: 1, series: [
    { label: "found", hue: "cached", dash: 0, get: (s, i, all) => hitRate(all, i) }] },
];

const dashes = [undefined, [7, 5], [2, 4]];

function clock(at) {
  return new Date(at * 1000).toLocaleTimeString([], { hour12: false });
}

function axis(side, write) {
  return {
    stroke: () => color("dim"), grid: { stroke: () => color("line"), width: 1 }, ticks: { show: false },
    font: FONT, size: side ? 58 : 24, gap: 4, space: side ? 30 : 86, values: (_, values) => values.map((value) => (value === null ? "" : write(value))),
  };
}

// Whole powers of ten around what is shown; without anything 1 ms to 1 s.
function decades(_, min, max) {
  if (!(max > 0)) return [1, 1000];
  return [10 ** Math.floor(Math.log10(min)), 10 ** Math.max(Math.floor(Math.log10(min)) + 1, Math.ceil(Math.log10(max)))];
}

function tensBetween(_, __, min, max) {
  const tens = [];
  for (let ten = 10 ** Math.ceil(Math.log10(min) - 1e-9); ten <= max * 1.001; ten *= 10) tens.push(ten);
  return tens;
}

function options(chart, width) {
  const limit = chart.max;
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: { y: false, points: { size: 6 } }, padding: [8, 6, 0, 0],
    scales: { y: chart.isLog ? { distr: 3, range: decades } : { range: (_, min, max) => [0, limit || Math.max(max * 1.1, 1)] } },
    axes: [axis(0, clock), { ...axis(1, chart.write), ...(chart.write === count ? { incrs: WHOLE } : {}), ...(chart.isLog ? { splits: tensBetween, filter: (_, splits) => splits } : {}) }],
    series: [{}, ...chart.series.map((line) => ({
      stroke: () => color(line.hue), width: 2, dash: dashes[line.dash], spanGaps: false, points: { show: false },
    }))],
    hooks: { setCursor: [(plot) => showAt(chart, plot.cursor.idx)] },
  };
}

function showAt(chart, idx) {
  const i = idx === null || idx === undefined ? chart.shown.length - 1 : idx;
  const sample = chart.shown[i];
  chart.series.forEach((line, k) => setText(line.node, sample ? chart.write(chart.data[k + 1][i]) : "–"));
}

function build(chart) {
  const legend = element("ul", { class: "legend" }, ...chart.series.map((line) => {
    line.node = element("span", {}, "–");
    return element("li", {}, element("span", { class: `key-line s-${line.hue} d${line.dash}` }), `${line.label} `, line.node);
  }));
  chart.plot = element("div", { class: "plot", "aria-hidden": "true" });
  chart.rows = element("div", {});
  chart.details = element("details", {}, element("summary", {}, "Numbers"), chart.rows);
  chart.details.addEventListener("toggle", () => writeTable(chart));
  chart.shown = [];
  chart.node = element("article", { class: "chart" },
    element("h3", {}, chart.title, element("span", {}, chart.unit)), legend, chart.plot, chart.details);
  return chart.node;
}

function writeTable(chart) {
  if (!chart.details.open) return;
  const rows = [];
  for (let i = chart.shown.length - 1; i >= 0 && rows.length < TABLE_ROWS; i -= 5)
    rows.push([clock(chart.shown[i].at), ...chart.series.map((_, k) => chart.write(chart.data[k + 1][i]))]);
  chart.rows.replaceChildren(table(chart.title, ["at", ...chart.series.map((line) => line.label)], rows));
}

export function start() {
  by("charts").append(...charts.map(build));
  new ResizeObserver(() => {
    for (const chart of charts)
      if (chart.u && chart.plot.clientWidth) chart.u.setSize({ width: chart.plot.clientWidth, height: HEIGHT });
  }).observe(by("charts"));
}

export function draw() {
  const span = Number(by("chart-span").value), last = store.samples[store.samples.length - 1];
  if (!last) return;
  const all = store.samples, from = all.findIndex((s) => s.at >= last.at - span);
  for (const chart of charts) {
    chart.shown = all.slice(from);
    chart.data = [chart.shown.map((s) => s.at), ...chart.series.map((line) => chart.shown.map((s, i) => line.get(s, from + i, all) ?? null))];
    if (!chart.u && chart.plot.clientWidth) chart.u = new uPlot(options(chart, chart.plot.clientWidth), chart.data, chart.plot);
    else if (chart.u) chart.u.setData(chart.data);
    if (chart.u) chart.u.setScale("x", { min: last.at - span, max: last.at });
    if (!chart.u || chart.u.cursor.idx === null || chart.u.cursor.idx === undefined) showAt(chart, null);
    writeTable(chart);
  }
}

export function redraw() {
  for (const chart of charts) if (chart.u) chart.u.redraw();
}

// build.mjs OUT: the dashboard as one file, gzip: styles and script inside, both named by digest in the page's policy.

import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const MAX_BYTES = 150_000;

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2];

async function bundle(entry) {
  const made = await build({
    entryPoints: [join(here, entry)], bundle: true, minify: true, write: false, target: "es2020", format: "iife",
    legalComments: "none", charset: "utf8", outdir: here,
  });
  // Neither may end its element early.
  return made.outputFiles[0].text.trim().replaceAll("</", "<\\/");
}

function digest(text) {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

const script = await bundle("src/main.js");
const style = await bundle("style.css");
const licence = readFileSync(join(here, "node_modules/uplot/LICENSE"), "utf8").trim();
const parts = { SCRIPT: script, STYLE: style, SCRIPT_DIGEST: digest(script), STYLE_DIGEST: digest(style) };
const page = readFileSync(join(here, "index.html"), "utf8").replace(/@(SCRIPT|STYLE)(_DIGEST)?@/g, (mark) => parts[mark.slice(1, -1)]) +
  `<!-- This page holds uPlot.\n\n${licence}\n-->\n`;
const packed = gzipSync(page, { level: 9 });
if (packed.length >= MAX_BYTES) {
  console.error(`web/build.mjs: the page has ${packed.length} bytes, at most ${MAX_BYTES - 1}`);
  process.exit(1);
}
mkdirSync(dirname(out), { recursive: true });
writeFileSync(out, packed);
console.log(`${out}: ${page.length} bytes, ${packed.length} packed`);

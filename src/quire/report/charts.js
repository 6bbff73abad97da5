"use strict";
// Fills the page with the figures. Anything a user could have written is inserted as text, never as markup.

const figures = JSON.parse(document.getElementById("figures").textContent);
const words = figures.words; // what a row, a document, a fragment and a source are called here
const isVision = figures.budgets !== null;
const byId = (id) => document.getElementById(id);
const whole = (n) => Math.round(n).toLocaleString("en-US");
const counted = (n, noun) => `${whole(n)} ${noun}${Math.round(n) === 1 ? "" : "s"}`;
const percent = (share, digits = 2) => `${(100 * share).toFixed(digits)} %`;
const say = (id, text) => { byId(id).textContent = text; };
const plain = (text) => String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
  (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);

function element(name, text, className) {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

const isShare = (cell) => /^[\d.]+ %$/.test(cell);

// Columns of numbers are aligned to the right: those that begin with one, or all from `first` on.
function fillTable(id, heads, rows, first = Infinity) {
  const table = byId(id);
  const head = table.appendChild(element("thead")).appendChild(element("tr"));
  heads.forEach((text) => head.appendChild(element("th", text)));
  const body = table.appendChild(element("tbody"));
  for (const row of rows) {
    const line = body.appendChild(element("tr"));
    row.forEach((cell, column) => line.appendChild(
      typeof cell === "number" ? element("td", whole(cell), "number") : element("td", plain(cell), isShare(cell) || column >= first ? "number" : "")));
  }
  head.querySelectorAll("th").forEach((th, column) => {
    if (rows.length && (typeof rows[0][column] === "number" || isShare(rows[0][column]) || column >= first)) th.className = "number";
  });
}

function showHeadline() {
  const h = figures.headline;
  say("name", plain(figures.name));
  document.title = `${plain(figures.name)} – quire report`;
  const cut = h.documents_cut ? ` (${whole(h.documents_cut)} of them cut)` : "";
  const policy = h.overlong === null ? "samples never cut" : `overlong ${h.overlong}`;
  const how = isVision ? "" : `; strategy ${h.strategy}, ${policy}`;
  const alone = h.single_long ? ` ${counted(h.single_long, "sample")} as long as a pack or longer ${h.single_long === 1 ? "has a pack" : "have packs"} to ${h.single_long === 1 ? "itself" : "themselves"}.` : "";
  say("verdict", `${counted(h.documents, words.document)}${cut} packed into ${counted(h.rows, words.row)} of up to ` +
    `${counted(h.max_length, "token")}${how}. No plan for these ${words.fragment}s has fewer than ` +
    `${counted(h.rows_bound, words.row)}.${alone}`);
  const tiles = [
    isVision ? [percent(h.utilization, 2), "mean fill in tokens"]
      : [percent(h.utilization, 3), "of all positions hold content", h.utilization >= 0.95 ? "good" : "warn"],
    [whole(h.rows), h.rows === 1 ? words.row : `${words.row}s`],
    [whole(h.tokens), `tokens in ${words.row}s`],
    [whole(h.documents), `${words.document}s`],
    isVision ? [(h.fragments / Math.max(1, h.rows)).toFixed(2), "samples per pack"] : [whole(h.fragments), "fragments"],
    isVision ? bindingTile() : [whole(h.padding), "padding tokens"],
    [whole(h.dropped_documents), `${words.document}s dropped`, h.dropped_documents ? "warn" : "good"],
    [whole(h.dropped_tokens), "tokens dropped", h.dropped_tokens ? "warn" : "good"],
  ];
  for (const [value, label, tone] of tiles) {
    const tile = byId("headline").appendChild(element("div", undefined, `tile ${tone || ""}`));
    tile.append(element("b", value), element("span", label));
  }
}

const limited = () => (figures.budgets || []).filter((b) => b.limit !== null);
const tightest = () => limited().reduce((a, b) => (b.packs_needed > a.packs_needed ? b : a));
const bindingTile = () => [tightest().name, "is the budget that binds"];

function showBudgets() {
  if (!isVision) { byId("budgets-card").remove(); return; }
  const one = tightest();
  say("budgets-note", `${limited().length > 1 ? `The budget of ${one.name} decides how many packs there are: it alone needs ` +
    `${counted(one.packs_needed, "pack")} for these samples. In single packs, the budget that binds is the one nearest to its limit.`
    : "Packs are limited in tokens only; packing_max_images and packing_max_patches limit the others."}`);
  const cell = (value) => (value === undefined || value === null ? "" : value);
  const facts = [["limit", (b) => (b.limit === null ? "none" : b.limit)], ["in all packs", (b) => b.total],
    ["mean per pack", (b) => (b.per_pack.mean || 0).toLocaleString("en-US", { maximumFractionDigits: 1 })],
    ["most in a pack", (b) => b.per_pack.max || 0], ["mean fill", (b) => (b.limit === null ? "" : percent(b.fill_mean))],
    ["packs where it binds", (b) => cell(b.binds)], ["packs it alone needs", (b) => cell(b.packs_needed)]];
  fillTable("budgets", ["budget", ...figures.budgets.map((b) => b.name)], facts.map(([name, of]) => [name, ...figures.budgets.map(of)]), 1);
}

function showTables() {
  const { documents, tokens } = figures.ledger;
  const reasons = [...new Set([...Object.keys(documents.dropped), ...Object.keys(tokens.dropped)])].sort();
  fillTable("ledger", ["", `${words.document}s`, "tokens"], [
    ["input", documents.input, tokens.input],
    ["emitted", documents.emitted, tokens.emitted],
    ...reasons.map((reason) => [`dropped: ${reason}`, documents.dropped[reason] || 0, tokens.dropped[reason] || 0]),
    ["pending", documents.pending, tokens.pending],
    ...(isVision ? [] : [["special tokens added", "", tokens.special], ["repeated as overlap", "", tokens.overlap],
      ["padding", "", tokens.padding]]),
    ...(figures.trained === null ? [] : [["trained", "", figures.trained.tokens]]),
  ]);
  say("ledger-note", "Every input token is emitted, or dropped for a counted reason: " +
    `${whole(tokens.input)} = ${whole(tokens.emitted)} emitted + ` +
    `${whole(reasons.reduce((sum, r) => sum + (tokens.dropped[r] || 0), 0))} dropped + ${whole(tokens.pending)} pending.`);
  const sources = figures.sources;
  say("sources-note", sources === null ? isVision ? "Samples come from one dataset." : "The sources of fragments were not recorded, so their shares are unknown."
    : `Tokens in ${words.row}s, by ${words.source}${sources.length > 20 ? "; the chart shows the 20 largest" : ""}.`);
  if (sources) {
    const total = sources.reduce((sum, s) => sum + s.tokens, 0) || 1;
    const labels = figures.trained !== null;
    fillTable("sources", [words.source, `${words.document}s`, "tokens", "share", ...(labels ? ["trained tokens", "trained share"] : [])],
      sources.map((s) => [s.name, s.documents, s.tokens, percent(s.tokens / total),
        ...(labels ? [s.trained, percent(s.trained / Math.max(1, s.tokens))] : [])]));
  }
  showBad(figures.bad_records);
  const options = figures.manifest.options;
  fillTable("options", ["option", "value"],
    Object.keys(options).sort().map((name) => [name, JSON.stringify(options[name])]));
  say("version", `quire ${plain(figures.manifest.format.quire)}`);
  if (isVision) { ["shards-details", "manifest-details"].forEach((id) => byId(id).remove()); return; }
  const records = figures.shards.some((s) => s.documents !== undefined) ? "documents" : "rows";
  fillTable("shards", ["file", "partition", records, "tokens", "bytes", "sha256"],
    figures.shards.map((s) => [s.file, s.partition, s[records], s.tokens, s.bytes, s.sha256]));
  say("manifest", JSON.stringify(figures.manifest, null, 1));
}

function showBad(bad) {
  if (bad === null) { byId("bad-card").remove(); return; }
  say("bad-note", bad.count ? `${counted(bad.count, "record")} left out` +
    `${bad.count > bad.first.length ? `; the first ${whole(bad.first.length)}` : ""}:` : "There are none.");
  if (bad.count) {
    fillTable("bad", ["file", "record", "byte", "reason"],
      bad.first.map((b) => [b.file, b.record, b.byte_offset === null ? "" : b.byte_offset, b.reason]));
  }
}

function showSamples() {
  if (figures.samples === null || !figures.samples.length) {
    byId("samples-card").remove();
    return;
  }
  figures.samples.forEach((texts, row) => {
    const colors = colorsOf(figures.rows[row] || []);
    byId("samples").appendChild(element("h3", `Row ${row}`));
    texts.forEach((text, place) => {
      const block = (figures.rows[row] || [])[place] || {};
      const box = byId("samples").appendChild(element("div", undefined, "sample"));
      box.style.borderLeftColor = colors[place];
      const whose = block.file === undefined ? "" : `${plain(block.file)}, ${recordText(block)}, from token ${whole(block.offset)}; `;
      box.append(element("small", `${whose}${counted(block.length, "token")}`), element("p", escaped(text)));
    });
  });
}

// Line ends and tabs stay in running text; other characters that could control or hide text are spelled out.
const escaped = (text) => text.split(/([\n\t])/).map((part) => (part === "\n" || part === "\t" ? part : plain(part))).join("");

const PALETTE = ["#4c84a8", "#d08c4c", "#6aa56e", "#b86a7d", "#8a77b5", "#c2a83e", "#4fa3a0", "#a87b5c",
  "#7f93c9", "#c77ea8", "#8da34a", "#5f8f7c"];

function hueOf(block, place) {
  const key = block.document === undefined ? String(place) : block.document;
  let hash = 2166136261;
  for (let i = 0; i < key.length; i += 1) hash = Math.imul(hash ^ key.charCodeAt(i), 16777619);
  return (hash >>> 0) % PALETTE.length;
}

// A document keeps its color from row to row, unless its left neighbor has the same color.
function colorsOf(row) {
  let before = -1;
  return row.map((block, place) => {
    const hue = hueOf(block, place);
    before = hue === before ? (hue + 1) % PALETTE.length : hue;
    return PALETTE[before];
  });
}

const charts = [];
let drawnNarrow = false;

function ink() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(name).trim();
  return { text: read("--ink"), soft: read("--soft"), line: read("--line"), card: read("--card"),
    accent: read("--accent"), good: read("--good"), warn: read("--warn") };
}

function axis(c, more) {
  return { axisLine: { lineStyle: { color: c.line } }, axisLabel: { color: c.soft, hideOverlap: true },
    axisTick: { show: false }, splitLine: { lineStyle: { color: c.line } },
    nameTextStyle: { color: c.soft }, ...more };
}

const narrow = () => window.innerWidth < 600;
const compact = (n) => n.toLocaleString("en-US", { notation: "compact", maximumSignificantDigits: 3 }).replace("K", "k"); // as on axes
const short = (n) => (n >= 1e9 ? `${n / 1e9}G` : n >= 1e6 ? `${n / 1e6}M` : n >= 1e3 ? `${n / 1e3}k` : `${n}`);

// On a log axis that starts at 1, a bar of one would have no height.
const LEAST = 0.5;

function bars(c, categories, series, { name, count, tooltip, log = false }) {
  return {
    grid: { left: 8, right: 14, top: series.length > 1 ? 52 : 34, bottom: 34, containLabel: true },
    legend: series.length > 1 ? { top: 0, right: 0, textStyle: { color: c.text } } : undefined,
    tooltip: { trigger: "axis", axisPointer: { type: "shadow" }, formatter: tooltip, confine: true },
    xAxis: axis(c, { type: "category", data: categories, name, nameLocation: "middle", nameGap: 26, splitLine: { show: false } }),
    yAxis: axis(c, { type: log ? "log" : "value", min: log ? LEAST : undefined, startValue: log ? LEAST : undefined, minInterval: log ? undefined : 1,
      name: log ? `${count}, log scale` : count, nameGap: 12, nameTextStyle: { color: c.soft, align: "left" },
      axisLabel: { color: c.soft, hideOverlap: true, formatter: (n) => (n < 1 && n > 0 ? "" : short(n)) } }),
    series: series.map((one) => ({ type: "bar", barCategoryGap: "8%", barGap: "0%", ...one,
      barMinHeight: 2, data: one.data.map((n) => n || null) })),
  };
}

// What the flow of tokens shows, as a list that a phone has room for.
function flowBars(c) {
  const { tokens } = figures.ledger;
  const parts = [["input", tokens.input, c.accent], ["emitted", tokens.emitted, c.good],
    ...Object.entries(tokens.dropped).map(([reason, n]) => [`dropped: ${reason}`, n, c.warn]),
    ["pending", tokens.pending, c.soft], ["special tokens", tokens.special, c.accent],
    ["overlap", tokens.overlap, c.accent], ["padding", tokens.padding, c.soft]].filter(([, n]) => n > 0);
  return { grid: { left: 8, right: 64, top: 4, bottom: 36, containLabel: true },
    xAxis: axis(c, { type: "value", name: "tokens", nameLocation: "middle", nameGap: 24, splitNumber: 3, axisLabel: { color: c.soft, formatter: short, hideOverlap: true } }),
    yAxis: axis(c, { type: "category", inverse: true, data: parts.map(([name]) => name) }),
    series: [{ type: "bar", barMaxWidth: 26, data: parts.map(([, value, color]) => ({ value, itemStyle: { color } })),
      label: { show: true, position: "right", color: c.text, formatter: (p) => compact(p.value) } }] };
}

const rowCount = (n) => `<b>${whole(n)}</b> ${n === 1 ? words.row : `${words.row}s`}`;
const lines = (parts) => parts.filter(Boolean).join("<br>"); // only figures, never text from a user

const recordText = (b) => `record ${whole(b.record)}${b.answer ? ` (${b.answer})` : ""}`;
const sourceText = (b) => (b.file === undefined ? "" : `\n${plain(b.file).slice(0, 80)}\n${recordText(b)}, from token ${whole(b.offset)}`);
const sampleText = (b) => `\n${b.file === undefined ? "" : `${plain(b.file).slice(0, 80)}, `}sample ${whole(Number(b.document))} of the epoch` +
  ["image", "patch"].map((noun) => [noun, b[noun === "patch" ? "patches" : "images"]]).filter(([, n]) => n)
    .map(([noun, n]) => `\n${whole(n)} ${noun}${n === 1 ? "" : noun === "patch" ? "es" : "s"}`).join("");

const OPTIONS = {
  "chart-ledger": (c) => {
    const { tokens } = figures.ledger;
    const links = [["input", "emitted", tokens.emitted], ["input", "pending", tokens.pending],
      ...Object.entries(tokens.dropped).map(([reason, n]) => ["input", `dropped: ${reason}`, n]),
      ...[["emitted", tokens.emitted], ["special tokens", tokens.special], ["overlap", tokens.overlap], ["padding", tokens.padding]]
        .map(([from, n]) => [from, `${words.row}s`, n])].filter((link) => link[2] > 0);
    const names = [...new Set(links.flatMap(([from, to]) => [from, to]))];
    if (narrow()) return flowBars(c);
    const tone = (n) => (n.startsWith("dropped") ? c.warn : n === "padding" || n === "pending" ? c.soft : n === `${words.row}s` ? c.good : c.accent);
    return {
      tooltip: { formatter: (p) => `${p.dataType === "edge" ? `${p.data.source} → ${p.data.target}` : p.name}: <b>${whole(p.value)}</b>`, confine: true },
      series: [{ type: "sankey", left: 8, right: 150, top: 12, bottom: 20, nodeGap: 22, nodeWidth: 16, layoutIterations: 32,
        label: { color: c.text, formatter: (p) => `${p.name}  ${whole(p.value)}` }, labelLayout: { moveOverlap: "shiftY" },
        lineStyle: { color: "source", opacity: 0.35 },
        data: names.map((n) => ({ name: n, itemStyle: { color: tone(n) } })),
        links: links.map(([source, target, value]) => ({ source, target, value })) }],
    };
  },
  "chart-rows": (c) => {
    const width = Math.max(figures.headline.max_length, ...figures.rows.map((row) => (row.length ? row[row.length - 1].start + row[row.length - 1].length : 0)));
    const blocks = figures.rows.flatMap((row, number) => {
      const colors = colorsOf(row);
      const end = row.length ? row[row.length - 1].start + row[row.length - 1].length : 0;
      return [...row.map((block, place) => ({ value: [number, block.start, block.start + block.length], block, itemStyle: { color: colors[place] } })),
        ...(end < width ? [{ value: [number, end, width], block: null, itemStyle: { color: c.line } }] : [])];
    });
    const zoom = { filterMode: "weakFilter" };
    return {
      grid: { left: 26, right: 24, top: 8, bottom: 70, containLabel: true },
      tooltip: { confine: true, renderMode: "richText", formatter: (p) => {
        const b = p.data.block;
        if (b === null) return `${words.row} ${p.value[0]}: ${isVision ? `room for ${counted(p.value[2] - p.value[1], "token")}` : counted(p.value[2] - p.value[1], "padding token")}`;
        return `${words.row} ${p.value[0]}, positions ${whole(b.start)} to ${whole(b.start + b.length - 1)}: ${counted(b.length, "token")}${isVision ? sampleText(b) : sourceText(b)}`;
      } },
      xAxis: axis(c, { type: "value", min: 0, max: width, splitLine: { show: false }, name: `position in the ${words.row}`, nameLocation: "middle", nameGap: 24 }),
      yAxis: axis(c, { type: "category", data: figures.rows.map((_, n) => `${n}`), inverse: true, name: words.row, nameLocation: "middle", nameGap: 30 }),
      dataZoom: [{ type: "inside", xAxisIndex: 0, moveOnMouseWheel: false, ...zoom },
        { type: "slider", xAxisIndex: 0, bottom: 8, height: 20, textStyle: { color: c.soft }, borderColor: c.line, ...zoom },
        { type: "slider", yAxisIndex: 0, right: 0, width: 14, showDetail: false, borderColor: c.line, startValue: 0, endValue: Math.min(23, figures.rows.length - 1), ...zoom }],
      series: [{ type: "custom", encode: { x: [1, 2], y: 0 }, data: blocks, renderItem: (params, api) => {
        const from = api.coord([api.value(1), api.value(0)]);
        const to = api.coord([api.value(2), api.value(0)]);
        const height = api.size([0, 1])[1] * 0.82;
        const shape = echarts.graphic.clipRectByRect({ x: from[0], y: from[1] - height / 2, width: Math.max(to[0] - from[0] - 1, 0.6), height }, params.coordSys);
        return shape && { type: "rect", shape: { ...shape, r: Math.min(2, height / 4) }, style: { fill: api.visual("color") }, emphasis: { style: { stroke: c.text, lineWidth: 1.5 } } };
      } }],
    };
  },
  "chart-budgets": (c) => {
    if (limited().length < 2) return null;
    const { width, counts } = limited()[0].fill;
    const colors = [c.accent, c.good, c.warn, c.soft];
    return bars(c, counts.map((_, i) => percent(i * width, 0)), limited().map((b, i) => ({ name: b.name, data: b.fill.counts, itemStyle: { color: colors[i] } })),
      { name: "share of the budget that is used", count: "packs", log: true, tooltip: (points) => lines([
        `${percent(points[0].dataIndex * width, 0)} to ${percent((points[0].dataIndex + 1) * width, 0)} of the budget`,
        ...points.map((p) => `${p.seriesName}: ${rowCount(p.value || 0)}`)]) });
  },
  "chart-binding": (c) => {
    if (limited().length < 2) return null;
    const colors = [c.accent, c.good, c.warn, c.soft];
    return { grid: { left: 8, right: 64, top: 34, bottom: 34, containLabel: true },
      xAxis: axis(c, { type: "value", name: "packs where the budget binds", nameLocation: "middle", nameGap: 26, splitNumber: 4, minInterval: 1, axisLabel: { color: c.soft, formatter: short, hideOverlap: true } }),
      yAxis: axis(c, { type: "category", inverse: true, data: limited().map((b) => b.name) }),
      series: [{ type: "bar", barMaxWidth: 34, data: limited().map((b, i) => ({ value: b.binds, itemStyle: { color: colors[i] } })),
        label: { show: true, position: "right", color: c.text, formatter: (p) => whole(p.value) } }] };
  },
  "chart-lengths": (c) => {
    const { edges, documents, fragments } = figures.lengths;
    const series = [...(documents ? [{ name: "documents", data: documents, itemStyle: { color: c.soft } }] : []),
      { name: isVision ? "samples" : "fragments in rows", data: fragments, itemStyle: { color: c.accent } }];
    return bars(c, edges.slice(0, -1).map(whole), series, { name: "tokens, log scale", count: "number", log: true,
      tooltip: (points) => lines([`${whole(edges[points[0].dataIndex])} to ${whole(edges[points[0].dataIndex + 1] - 1)} tokens`,
        ...points.map((p) => `${p.seriesName}: <b>${whole(p.value || 0)}</b>`)]) });
  },
  "chart-fill": (c) => {
    const { width, counts } = figures.fill;
    return bars(c, counts.map((_, i) => percent(i * width, 0)), [{ data: counts, itemStyle: { color: c.good } }], { name: isVision ? "share of the token budget" : "share of the row that is filled", count: `${words.row}s`, log: true,
      tooltip: ([p]) => lines([`${percent(p.dataIndex * width, 0)} to ${percent((p.dataIndex + 1) * width, 0)} full`, rowCount(p.value || 0)]) });
  },
  "chart-fragments": (c) => {
    const { from, width, counts } = figures.fragments_per_row;
    return bars(c, from.map(whole), [{ data: counts, itemStyle: { color: c.accent } }], { name: `${words.fragment}s in a ${words.row}`, count: `${words.row}s`,
      tooltip: ([p]) => lines([width > 1 ? `${whole(from[p.dataIndex])} to ${whole(from[p.dataIndex] + width - 1)} ${words.fragment}s` : counted(from[p.dataIndex], words.fragment), rowCount(p.value || 0)]) });
  },
  "chart-attention": (c) => {
    const { width, counts } = figures.attention.pairs;
    return bars(c, counts.map((_, i) => percent(i * width, 0)), [{ data: counts, itemStyle: { color: c.warn } }], { name: narrow() ? "share of pairs" : `share of the pairs in one ${words.document} as long as a ${words.row}`, count: `${words.row}s`, log: true,
      tooltip: ([p]) => lines([`${percent(p.dataIndex * width, 0)} to ${percent((p.dataIndex + 1) * width, 0)} of the pairs`, rowCount(p.value || 0)]) });
  },
  "chart-balance": (c) => {
    const { balance } = figures.attention;
    if (balance === null) return null;
    const data = [[isVision ? "as planned" : "in file order", balance.before], ...Object.entries(balance.after).map(([w, v]) => [`window ${w}`, v])];
    const top = Math.max(...data.map(([, value]) => value));
    return { grid: { left: 8, right: 64, top: 4, bottom: 30, containLabel: true },
      xAxis: axis(c, { type: "value", name: "slowest rank / mean", nameLocation: "middle", nameGap: 24, min: 1, max: 1 + Math.max(0.02, (top - 1) * 1.05), axisLabel: { color: c.soft, hideOverlap: true, formatter: (v) => v.toFixed(top < 1.1 ? 3 : 2) }, splitNumber: 3 }),
      yAxis: axis(c, { type: "category", data: data.map(([n]) => n), inverse: true }),
      series: [{ type: "bar", data: data.map(([, v], i) => ({ value: v, itemStyle: { color: i ? c.good : c.soft } })),
        label: { show: true, position: "right", color: c.text, formatter: (p) => p.value.toFixed(3) } }] };
  },
  "chart-trained": (c) => {
    if (figures.trained === null) return null;
    const { width, counts } = figures.trained.shares;
    return bars(c, counts.map((_, i) => percent(i * width, 0)), [{ data: counts, itemStyle: { color: c.good } }], { name: "share of trained tokens", count: "fragments", log: true,
      tooltip: ([p]) => lines([`${percent(p.dataIndex * width, 0)} to ${percent((p.dataIndex + 1) * width, 0)} trained`, `<b>${whole(p.value || 0)}</b> fragments`]) });
  },
  "chart-sources": (c) => {
    if (!figures.sources || figures.sources.length < 2) return null;
    const largest = figures.sources.map((s) => s).sort((a, b) => b.tokens - a.tokens).slice(0, 20);
    const labels = figures.trained !== null;
    const series = labels ? [["trained", (s) => s.trained, c.good], ["not trained", (s) => s.tokens - s.trained, c.soft]]
      : [["tokens", (s) => s.tokens, c.accent]];
    return { grid: { left: 8, right: 24, top: labels ? 28 : 4, bottom: 30, containLabel: true },
      legend: labels ? { top: 0, right: 0, textStyle: { color: c.text } } : undefined,
      tooltip: { renderMode: "richText", confine: true, formatter: (p) => `${plain(p.name).slice(0, 80)}\n${counted(p.value, "token")}${labels ? ` ${p.seriesName}` : ""}` },
      xAxis: axis(c, { type: "value", name: "tokens", nameLocation: "middle", nameGap: 24, splitNumber: 4, axisLabel: { color: c.soft, formatter: short, hideOverlap: true } }),
      yAxis: axis(c, { type: "category", inverse: true, data: largest.map((s) => plain(s.name)), axisLabel: { color: c.soft, width: 130, overflow: "truncate" } }),
      series: series.map(([name, of, color]) => ({ type: "bar", name, stack: "tokens", data: largest.map(of), itemStyle: { color } })) };
  },
};

function showNotes() {
  const fill = figures.fill_summary;
  const lengths = figures.document_lengths;
  const fragments = figures.fragments_per_row;
  const { attention } = figures;
  if (!figures.headline.rows) {
    ["lengths", "fill", "fragments", "attention", "balance", "sources", ...(isVision ? ["budgets"] : [])].forEach((id) => say(`${id}-note`, `There are no ${words.row}s.`));
    return;
  }
  say("rows-note", `Each line is a ${words.row} and each block a ${words.fragment}. ${isVision ? "Unused room" : "Fragments of one document have the same color; padding"} is gray.`);
  if (isVision) say("lengths-title", "Lengths of samples");
  say("lengths-note", lengths ? `${isVision ? "Samples" : "Documents"}: median ${counted(lengths.p50, "token")}, 95 % at most ${whole(lengths.p95)}, longest ${whole(lengths.max)}.`
    : "The sources of fragments were not recorded, so the lengths of documents are unknown.");
  say("fill-note", `Median ${percent(fill.p50)} full; 95 % of the ${words.row}s at least ${percent(fill.p5)}; emptiest ${percent(fill.min)}.`);
  if (figures.trained !== null) {
    const without = figures.trained.fragments_without;
    say("trained-note", `${whole(figures.trained.tokens)} of ${counted(figures.headline.tokens, "token")} in rows ` +
      `(${percent(figures.trained.tokens / Math.max(1, figures.headline.tokens), 1)}) are targets of the loss` +
      `${without ? `; ${counted(without, "fragment")} without any` : ""}.`);
  }
  say("fragments-note", `On average ${(figures.headline.fragments / figures.headline.rows).toFixed(2)} per ${words.row}${fragments.width > 1 ? `; each bar covers ${fragments.width} counts` : ""}.`);
  say("attention-note", `Pairs of tokens that attend to each other. ${isVision ? "Boundaries of samples" : "Document boundaries"} save ${percent(1 - attention.pairs_total / attention.pairs_without_boundaries, 1)} of the pairs that ${words.row}s without boundaries would have.`);
  say("balance-note", attention.balance === null ? `There are fewer ${words.row}s than one step of ${counted(attention.ranks, "rank")} with ${counted(attention.rows_per_rank, words.row)} each.`
    : `Time of the slowest rank relative to the mean, for ${counted(attention.ranks, "rank")} with ${counted(attention.rows_per_rank, words.row)} per step; 1 is perfectly even. A window is the number of steps that may exchange ${words.row}s.`);
}

function draw() {
  const colors = ink();
  charts.splice(0).forEach((chart) => chart.dispose());
  for (const [id, make] of Object.entries(OPTIONS).filter(([name]) => byId(name))) {
    const option = figures.headline.rows ? make(colors) : null;
    if (option === null) { byId(id).style.display = "none"; continue; }
    if (id === "chart-ledger") byId(id).classList.toggle("short", narrow());
    if (id === "chart-sources") byId(id).style.height = `${Math.max(190, 60 + 20 * Math.min(20, figures.sources.length))}px`;
    const chart = echarts.init(byId(id));
    chart.setOption({ animation: false, textStyle: { fontFamily: "inherit" }, ...option,
      tooltip: option.tooltip && { backgroundColor: colors.card, borderColor: colors.line, textStyle: { color: colors.text }, ...option.tooltip } });
    charts.push(chart);
  }
  document.body.dataset.charts = String(charts.length);
  drawnNarrow = narrow();
}

if (figures.trained === null) byId("trained-card").remove();
// Labels give it two more columns; a long list leaves nothing blank beside it.
if (figures.trained !== null || (figures.sources || []).length > 20) byId("sources-card").classList.add("wide");
showHeadline();
showBudgets();
showTables();
showSamples();
showNotes();
draw();
// Without a modifier the wheel scrolls the page: ECharts' own zoomOnMouseWheel: "ctrl" stops the page all the same.
byId("chart-rows").addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
}, { capture: true, passive: true });
window.addEventListener("resize", () => (narrow() === drawnNarrow ? charts.forEach((chart) => chart.resize()) : draw()));
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

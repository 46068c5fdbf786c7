"use strict";
/* The tables, the map and the panel, drawn from the object below. Names only ever reach the page as text. */
const byId = (id) => document.getElementById(id);
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));
const raw = JSON.parse(byId("data").textContent);
function decode({ keys, rows }) { /* a column with $ holds numbers of texts */
  const columns = keys.map((key) => [key.replace("$", ""), key[0] === "$"]);
  return rows.map((row) => Object.fromEntries(columns.map(([name, text], i) => [name, text ? raw.texts[row[i]] : row[i]])));
}
raw.kinds = Object.fromEntries(raw.kinds.map(([kind, ...words]) => [kind, words]));
const data = { layers: decode(raw.layers), tensors: decode(raw.tensors) };
const inA = new Map(decode(raw.before).map((x) => [x.name, x])); /* of a comparison: the same layer on the other side */
data.layers.forEach((layer, index) => {
  layer.index = index;
  layer.engine = raw.engine[layer.name] || null;
  layer.a = inA.get(layer.name) || (raw.engineBefore[layer.name] ? { ...layer } : null);
  if (layer.a) layer.a.engine = raw.engineBefore[layer.name] || null;
  for (const side of [layer, layer.a].filter(Boolean)) {
    side.label = raw.kinds[side.kind][1];
    side.deviceLabel = side.device ? raw.devices[side.device][1] : "";
  }
  layer.findings = (raw.findings[index] || []).map((finding) => finding.map((i) => raw.texts[i]));
  const lost = layer.outputs.map((t) => data.tensors[t].bits).filter((bits) => bits !== null);
  layer.bits = lost.length ? Math.max(...lost) : null;
});
data.tensors.forEach((tensor, index) => { tensor.index = index; });

const svgns = "http://www.w3.org/2000/svg";
function draw(tag, attributes, ...children) {
  const element = document.createElementNS(svgns, tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== undefined) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}
function link(name, hash) {
  const anchor = make(hash ? "a" : "span", name, "name");
  if (hash) anchor.href = hash;
  return anchor;
}
function markOf(kind) {
  return make("span", raw.kinds[kind][0], `mark m-${kind}`);
}

/* ---- figures, as the rest of the page words them ---- */
const digits = (value) => String(Number(value.toPrecision(3)));
function amount(number) {
  if (number === null) return "unknown";
  const [unit, size] = [["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, s]) => number >= s) || ["", 1];
  return unit ? `${digits(number / size)} ${unit}` : String(Math.trunc(number));
}
function milliseconds(value) {
  return value === null || value === undefined ? "unknown" : `${value < 100 ? digits(value) : value.toFixed(0)} ms`;
}
function percent(part) { /* 0 to 1 */
  if (part === null || part === undefined) return "";
  const value = 100 * part;
  return value >= 99.95 && value < 100 ? ">99.9%" : value > 0 && value < 0.05 ? "<0.1%" : `${value.toFixed(1)}%`;
}
const decibel = (value) => (value === null ? "" : typeof value === "string" ? value : value.toFixed(1));
const four = (value) => String(Number(value.toPrecision(4)));

/* ---- theme ---- */
const themes = ["system", "light", "dark"];
function setTheme(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
  try { localStorage.setItem("theme", theme); } catch (_) { /* a page from a file may have no storage */ }
}
let theme = "system";
try { theme = themes.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "system"; } catch (_) { /* as above */ }
setTheme(theme);
byId("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  setTheme(theme);
});

/* ---- copying ---- */
function copyByHand(text) {
  const area = make("textarea", text, "quiet");
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
async function copy(button) {
  const text = button.dataset.copy;
  let done = false;
  try {
    await navigator.clipboard.writeText(text);
    done = true;
  } catch (_) {
    done = copyByHand(text);
  }
  button.textContent = done ? "copied" : "not copied";
  byId("said").textContent = done ? `Copied ${text}` : "Could not copy";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  event.preventDefault();
  copy(button);
});
function copyButton(text, what) {
  const button = make("button", "copy", "copy");
  button.type = "button";
  button.dataset.copy = text;
  button.setAttribute("aria-label", `Copy ${what}`);
  return button;
}

/* ---- tables: their rows stand in `raw`, and of many only those that show are in the document ---- */
const has = (key) => data.layers.some((x) => x[key] !== null && x[key] !== "");
const stateOf = (side) => (!side ? [make("span", "not there", "dim")]
  : [markOf(side.kind), ` ${raw.kinds[side.kind][1]}`, make("span", side.device ? ` ${raw.devices[side.device][1]}` : "", "dim")]);
function bar(layer, most) {
  const rect = draw("rect", { class: `k-${layer.device}`, width: Math.max(1, (64 * layer.ms) / most), height: 10 });
  return draw("svg", { class: "tb", width: 64, height: 10, "aria-hidden": "true" }, rect);
}
/* a column: heading, class, value (what sorts, and what a file gets if `num` is "raw"), and what shows: text or nodes */
const sheets = {
  layers() {
    const most = Math.max(...data.layers.map((x) => x.ms || 0));
    const timed = data.layers.some((x) => x.fused || x.bytes !== null);
    return {
      items: data.layers,
      kind: (x) => x.kind,
      text: (x) => `${x.name} ${x.op} ${x.label} ${x.bound} ${x.reason}`,
      columns: [
        ["#", "c-i", "num", (x) => x.index],
        ["Layer", "c-n", "", (x) => x.name, (x) => [link(x.name, `#layer-${x.index}`)]],
        ["Operator", "c-o", "", (x) => x.op],
        ["Runs in", "c-k", "", (x) => x.label, (x) => [markOf(x.kind), " ", make("span", x.label, "kind")]],
        timed && ["Estimated ms", "c-t", "raw", (x) => x.ms, (x) => [x.ms && most ? bar(x, most) : "", x.fused ? "fused" : x.ms === null ? "" : x.ms.toFixed(3)]],
        timed && ["Bound by", "c-u", "", (x) => x.bound],
        ["MACs", "c-m", "raw", (x) => x.macs, (x) => amount(x.macs)],
        ["Share", "c-s", "num", (x) => x.share, (x) => (x.share === null ? "" : percent(x.share))],
        ["Weights", "c-w", "raw", (x) => x.weights, (x) => amount(x.weights)],
        has("db") && ["SQNR dB", "c-b", "num", (x) => (x.db === "equal" ? 1e4 : x.db === "none left" ? -1e4 : x.db), (x) => decibel(x.db)],
        has("noise") && ["Noise share", "c-b", "raw", (x) => x.noise, (x) => percent(x.noise)],
        has("engine") && ["Engine", "c-o", "", (x) => (x.engine ? x.engine.actual || x.engine.verdict : "")],
        has("engine") && ["Measured ms", "c-b", "raw", (x) => x.engine && x.engine.milliseconds, (x) => (x.engine && x.engine.milliseconds !== null ? x.engine.milliseconds.toFixed(3) : "")],
        ["Reason", "c-r", "", (x) => x.reason],
      ],
    };
  },
  scales: () => ({
    items: data.tensors.filter((t) => t.scale),
    kind: (t) => (t.explicit ? "explicit" : "inferred"),
    columns: [
      ["Tensor", "c-n", "", (t) => t.name, (t) => [link(t.name, `#tensor-${t.index}`)]],
      ["Scale", "c-v", "num", (t) => Number(t.scale), (t) => t.scale],
      ["Hex", "c-h", "", (t) => t.hex, (t) => [make("code", t.hex)]],
      ["Range", "c-a", "num", (t) => 127 * t.scale, (t) => `\u00b1${four(127 * t.scale)}`],
      ["Origin", "c-e", "", (t) => `${t.explicit ? "model" : "inferred"}: ${t.rule} ${t.words}`],
      ["At, from", "c-f", "", (t) => t.node + (t.source && t.source !== t.name ? ` from ${t.source}` : "")],
    ],
  }),
  audit: () => ({
    items: raw.audit,
    columns: [
      ["Tensor", "c-n", "", (t) => t.tensor, (t) => [link(t.tensor, hashOf(t.tensor))]],
      ["Origin", "c-g", "", (t) => t.origin],
      ["Clips at", "c-a", "raw", (t) => t.amax, (t) => four(t.amax)],
      ["Best", "c-a", "raw", (t) => t.best_amax, (t) => four(t.best_amax)],
      ["Clipped", "c-p", "raw", (t) => t.clipped, (t) => percent(t.clipped)],
      ["SQNR dB", "c-d", "raw", (t) => t.sqnr_db ?? Infinity, (t) => (t.sqnr_db === null ? "no loss" : decibel(t.sqnr_db))],
      ["with the best", "c-d", "raw", (t) => t.best_sqnr_db ?? Infinity, (t) => (t.best_sqnr_db === null ? "no loss" : decibel(t.best_sqnr_db))],
      ["Cause", "c-r", "", (t) => t.cause],
      ["Noise", "c-p", "raw", (t) => t.noise_share ?? 0, (t) => percent(t.noise_share ?? 0)],
    ],
  }),
  changedLayers: () => ({
    items: raw.changedLayers,
    text: (x) => [x.name, x.op, x.reason, ...[x.before, x.after].map((s) => (s ? raw.kinds[s.kind][1] : "not there"))].join(" "),
    columns: [
      ["Layer", "c-n", "", (x) => x.name, (x) => [link(x.name, x.link)]],
      ["Operator", "c-o", "", (x) => x.op],
      ["A", "c-k", "", (x) => (x.before ? raw.kinds[x.before.kind][1] : ""), (x) => stateOf(x.before)],
      ["B", "c-k", "", (x) => (x.after ? raw.kinds[x.after.kind][1] : ""), (x) => stateOf(x.after)],
      ["MACs", "c-m", "raw", (x) => x.macs, (x) => amount(x.macs)],
      ["Reason in B", "c-r", "", (x) => x.reason],
    ],
  }),
  changedScales: () => ({
    items: raw.changedScales,
    columns: [
      ["Tensor", "c-n", "", (x) => x.name, (x) => [link(x.name, x.link)]],
      ...["before", "after"].map((side, i) => ["AB"[i], "c-v", "raw", (x) => x[side] && x[side].scale,
        (x) => (x[side] ? [four(x[side].scale), make("br"), make("code", x[side].hex, "dim")] : [make("span", "none", "dim")])]),
      ["B / A", "c-a", "num", (x) => x.ratio, (x) => (x.ratio ? four(x.ratio) : "")],
      ...["before", "after"].map((side, i) => [`Origin in ${"AB"[i]}`, "c-e", "", (x) => (x[side] ? x[side].rule : "")]),
    ],
  }),
};
const tensorNumber = new Map(data.tensors.map((t) => [t.name, t.index]));
const hashOf = (tensor) => (tensorNumber.has(tensor) ? `#tensor-${tensorNumber.get(tensor)}` : "");
const rowHeight = 48; /* of a table too long to be in the document whole; page.css has it too */
const wholeBelow = 60;
let printingAll = false;
const sheetOf = new Map(); /* table -> {columns, shown, draw} */

function setUpTable(table) {
  const sheet = sheets[table.dataset.rows]();
  const columns = sheet.columns.filter(Boolean);
  const text = sheet.text || ((item) => columns.map((column) => column[3](item) ?? "").join(" "));
  const frame = table.parentElement;
  const section = table.closest("section");
  const search = document.querySelector(`[data-filter="${table.id}"]`);
  const count = document.querySelector(`[data-count="${table.id}"]`);
  const chips = all(".chip", section);
  const [head, body] = [table.createTHead().insertRow(), table.createTBody()];
  const state = { columns, shown: sheet.items };
  let [order, texts, drawn] = [sheet.items, null, ""];
  sheetOf.set(table, state);
  frame.classList.toggle("few", sheet.items.length < 12);
  table.classList.toggle("wide", columns.length > 9);
  table.setAttribute("aria-rowcount", sheet.items.length + 1);

  function row(item, index) {
    const line = make("tr");
    line.setAttribute("aria-rowindex", index + 2);
    for (const [, className, number, value, show] of columns) {
      const cell = make("td", undefined, `${className}${number ? " num" : ""}`);
      const inner = make("div", undefined, "cell");
      const content = show ? show(item) : value(item) ?? "";
      inner.append(...(Array.isArray(content) ? content : [String(content)]));
      cell.append(inner);
      line.append(cell);
    }
    return line;
  }
  function space(rows) {
    const line = make("tr", undefined, "space");
    const cell = make("td");
    cell.colSpan = columns.length;
    cell.style.height = `${rows * rowHeight}px`;
    line.setAttribute("aria-hidden", "true");
    line.append(cell);
    return line;
  }
  state.draw = () => {
    const number = state.shown.length;
    const part = number > wholeBelow && !printingAll;
    const first = part ? Math.max(0, Math.floor(frame.scrollTop / rowHeight) - 6) : 0;
    const last = part ? Math.min(number, first + Math.ceil((frame.clientHeight || 700) / rowHeight) + 12) : number;
    if (drawn === `${first} ${last} ${number}`) return;
    drawn = `${first} ${last} ${number}`;
    frame.classList.toggle("part", part);
    const lines = state.shown.slice(first, last).map((item, i) => row(item, first + i));
    body.replaceChildren(...(part ? [space(first), ...lines, space(number - last)] : lines));
  };
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kinds = chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.kind);
    texts = texts || new Map(sheet.items.map((item) => [item, text(item).toLowerCase()]));
    state.shown = order.filter((item) => (!kinds.length || kinds.includes(sheet.kind(item))) && words.every((w) => texts.get(item).includes(w)));
    const [shown, whole] = [state.shown.length, sheet.items.length];
    count.textContent = shown === whole ? `${shown} rows` : `${shown} of ${whole} rows`;
    drawn = "";
    frame.scrollTop = 0;
    state.draw();
  }
  search.addEventListener("input", filter);
  frame.addEventListener("scroll", () => requestAnimationFrame(state.draw), { passive: true });
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  columns.forEach(([title, className, number, value], column) => {
    const cell = make("th", undefined, `${className}${number ? " num" : ""}`);
    const button = make("button", title);
    button.type = "button";
    cell.scope = "col";
    cell.append(button);
    head.append(cell);
    button.addEventListener("click", () => {
      const before = cell.getAttribute("aria-sort");
      const down = before ? before === "ascending" : Boolean(number) && column > 0;
      for (const other of head.cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = number ? (item) => value(item) ?? -Infinity : (item) => String(value(item)).toLowerCase();
      const keys = new Map(sheet.items.map((item) => [item, key(item)]));
      order = sheet.items.slice().sort((a, b) => (keys.get(a) < keys.get(b) ? -1 : keys.get(a) > keys.get(b) ? 1 : 0) * (down ? -1 : 1));
      filter();
    });
  });
  filter();
}
all("table[data-rows]").forEach(setUpTable);

for (const table of all("table:not([data-rows])")) { /* on a narrow screen a row is a card, and its cells say what they are */
  table.classList.add("cards");
  const heads = Array.from(table.tHead.rows[0].cells).map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) Array.from(row.cells).forEach((cell, i) => { cell.dataset.label = heads[i]; });
}

/* ---- tables as files: the rows that the search left, numbers in full ---- */
function plain(text) {
  const line = text.replace(/\s+/g, " ").trim();
  return /^[=+\-@]/.test(line) && Number.isNaN(Number(line)) ? `'${line}` : line; /* no formula for a spreadsheet */
}
function cellText(cell) {
  const copy = cell.cloneNode(true);
  for (const part of copy.querySelectorAll("button, svg")) part.remove();
  return plain(copy.textContent);
}
function fileCell([, , number, value, show], item) {
  if (number === "raw" || !show || !number) return value(item) === Infinity ? "" : plain(String(value(item) ?? ""));
  const content = show(item);
  return plain(Array.isArray(content) ? content.map((c) => c.textContent ?? c).join(" ") : content);
}
function csv(table) {
  const sheet = sheetOf.get(table);
  const lines = sheet
    ? [sheet.columns.map((column) => column[0]), ...sheet.shown.map((item) => sheet.columns.map((column) => fileCell(column, item)))]
    : [...table.tHead.rows, ...table.tBodies[0].rows].map((row) => Array.from(row.cells).map(cellText));
  return lines.map((line) => line.map((text) => (/[",]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text)).join(",")).join("\r\n") + "\r\n";
}
for (const table of all("table[id]")) {
  const button = make("button", "CSV", "csv");
  button.type = "button";
  const name = `${document.body.dataset.name}_${table.dataset.name}.csv`.replace(/[^\w.+-]+/g, "_");
  button.setAttribute("aria-label", `Download this table as ${name}`);
  button.addEventListener("click", () => {
    const anchor = make("a");
    anchor.href = URL.createObjectURL(new Blob(["\ufeff", csv(table)], { type: "text/csv" }));
    anchor.download = name;
    anchor.click();
    setTimeout(() => URL.revokeObjectURL(anchor.href), 10000);
  });
  const search = document.querySelector(`[data-filter="${table.id}"]`);
  if (search) search.closest(".tools").append(button);
  else {
    const tools = make("div", undefined, "tools right");
    tools.append(button);
    table.parentElement.after(tools);
  }
}

/* ---- print: two pages of summary, or all ---- */
byId("print-all")?.addEventListener("click", () => {
  printingAll = true;
  document.body.classList.add("print-all");
  for (const { draw } of sheetOf.values()) draw();
  window.print();
});
window.addEventListener("afterprint", () => {
  printingAll = false;
  document.body.classList.remove("print-all");
  for (const { draw } of sheetOf.values()) draw();
});

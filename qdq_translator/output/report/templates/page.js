"use strict";
/* The page stands without this; it adds theme, search, sorting, copying, and a graph that moves.
   Names only ever reach the page as text. */
const raw = JSON.parse(document.getElementById("data").textContent);
const layerKeys = ["name", "op", "kind", "mark", "label", "device", "reason", "cure", "=cause", "macs", "share", "weights", "=inputs", "=outputs", "=findings", "db", "cost"];
const tensorKeys = ["name", "scale", "hex", "=explicit", "rule", "words", "node", "source", "shape", "role", "=producer", "=readers"];
function rows(keys, values) { /* a key without = holds the number of a text */
  return values.map((row) => Object.fromEntries(keys.map((key, i) =>
    key[0] === "=" ? [key.slice(1), row[i]] : [key, raw.texts[row[i]]])));
}
const data = { layers: rows(layerKeys, raw.layers), tensors: rows(tensorKeys, raw.tensors) };
for (const layer of data.layers) layer.findings = layer.findings.map((finding) => finding.map((i) => raw.texts[i]));
const byId = (id) => document.getElementById(id);
const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

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

/* ---- tables ---- */
function setUpTable(table) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const search = document.querySelector(`[data-filter="${table.id}"]`);
  const count = document.querySelector(`[data-count="${table.id}"]`);
  const chips = all(".chip", table.closest("section"));
  if (rows.length < 12) table.parentElement.classList.add("few");
  let texts = null;
  function filter() {
    texts = texts || rows.map((row) => row.textContent.toLowerCase());
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kinds = chips.filter((c) => c.getAttribute("aria-pressed") === "true").map((c) => c.dataset.kind);
    let shown = 0;
    rows.forEach((row, i) => {
      const keep = (!kinds.length || kinds.includes(row.dataset.kind)) && words.every((w) => texts[i].includes(w));
      if (row.hidden === keep) row.hidden = !keep;
      shown += keep;
    });
    count.textContent = shown === rows.length ? `${shown} rows` : `${shown} of ${rows.length} rows`;
  }
  search.addEventListener("input", filter);
  for (const chip of chips) {
    chip.addEventListener("click", () => {
      chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
      filter();
    });
  }
  Array.from(table.tHead.rows[0].cells).forEach((head, column) => {
    const button = make("button", head.textContent);
    button.type = "button";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const number = head.classList.contains("num");
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : number && column > 0;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keys = new Map(rows.map((row) => {
        const cell = row.cells[column];
        return [row, number ? Number((cell.dataset.v === "" ? "1e9" : cell.dataset.v) ?? cell.textContent.replace("\u00b1", "")) : cell.textContent.toLowerCase()];
      }));
      const order = rows.slice().sort((a, b) => {
        const [x, y] = [keys.get(a), keys.get(b)];
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
      body.append(...order);
    });
  });
}
all("table.sortable").forEach(setUpTable);

for (const table of all("table:not(.sortable)")) { /* on a narrow screen a row is a card, and its cells say what they are */
  table.classList.add("cards");
  const heads = Array.from(table.tHead.rows[0].cells).map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) Array.from(row.cells).forEach((cell, i) => { cell.dataset.label = heads[i]; });
}

/* ---- tables as files: the rows that show, numbers in full ---- */
function cellText(cell, raw) {
  if (raw && cell.dataset.v !== undefined) return cell.dataset.v === "-1" ? "" : cell.dataset.v; /* -1: unknown */
  const copy = cell.cloneNode(true);
  for (const part of copy.querySelectorAll("button, svg")) part.remove();
  const text = copy.textContent.replace(/\s+/g, " ").trim();
  return /^[=+\-@]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text; /* no formula for a spreadsheet */
}
function csv(table) {
  const heads = Array.from(table.tHead.rows[0].cells);
  const lines = [heads.map((head) => cellText(head.querySelector("button") || head, false))];
  for (const row of table.tBodies[0].rows) {
    if (!row.hidden) lines.push(Array.from(row.cells).map((cell, i) => cellText(cell, heads[i].classList.contains("raw"))));
  }
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

/* ---- the graph: moving ---- */
const graph = byId("graph");
const whole = graph.getAttribute("viewBox").split(" ").map(Number);
let view = { x: 0, y: 0, scale: 1 }; /* scale: screen pixels for each pixel of the drawing */
let fitted = true; /* the whole network shows, and still will after a change of size */
const size = { width: 0, height: 0 };
const farBelow = 0.27; /* no text but the marks of what is not plain INT8 */
const midBelow = 0.6; /* operator and mark only, larger */

function show() {
  view.scale = Math.min(Math.max(view.scale, 0.02), 4);
  graph.setAttribute("viewBox", `${view.x} ${view.y} ${size.width / view.scale} ${size.height / view.scale}`);
  graph.classList.toggle("far", view.scale < farBelow);
  graph.classList.toggle("mid", view.scale >= farBelow && view.scale < midBelow);
}
function fit() {
  view.scale = Math.min(size.width / whole[2], size.height / whole[3], 1.25);
  view.x = (whole[2] - size.width / view.scale) / 2;
  view.y = (whole[3] - size.height / view.scale) / 2;
  fitted = true;
  show();
}
function zoom(factor, x = size.width / 2, y = size.height / 2) {
  const before = view.scale;
  fitted = false;
  view.scale = Math.min(Math.max(view.scale * factor, 0.02), 4);
  view.x += x / before - x / view.scale;
  view.y += y / before - y / view.scale;
  show();
}
function measure() {
  const box = graph.getBoundingClientRect();
  const middle = { x: view.x + size.width / view.scale / 2, y: view.y + size.height / view.scale / 2 };
  size.width = box.width || 1;
  size.height = box.height || 1;
  if (fitted) return fit();
  view.x = middle.x - size.width / view.scale / 2;
  view.y = middle.y - size.height / view.scale / 2;
  show();
}
new ResizeObserver(measure).observe(graph);
measure();

const pointers = new Map();
let moved = 0;
graph.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  moved = 0;
});
graph.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const now = { x: event.clientX, y: event.clientY };
  moved += Math.hypot(now.x - last.x, now.y - last.y);
  if (moved > 4 && !graph.hasPointerCapture(event.pointerId)) {
    graph.setPointerCapture(event.pointerId);
    graph.classList.add("drag");
  }
  const others = Array.from(pointers).filter(([id]) => id !== event.pointerId);
  if (others.length) {
    const other = others[0][1];
    const box = graph.getBoundingClientRect();
    const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(last.x - other.x, last.y - other.y));
    zoom(factor, (now.x + other.x) / 2 - box.left, (now.y + other.y) / 2 - box.top);
  } else if (moved > 4) {
    fitted = false;
    view.x -= (now.x - last.x) / view.scale;
    view.y -= (now.y - last.y) / view.scale;
    show();
  }
  pointers.set(event.pointerId, now);
});
for (const kind of ["pointerup", "pointercancel"]) {
  graph.addEventListener(kind, (event) => {
    pointers.delete(event.pointerId);
    graph.classList.remove("drag");
  });
}
graph.addEventListener("wheel", (event) => {
  const stage = graph.parentElement;
  if (!event.ctrlKey && !event.metaKey && !stage.classList.contains("full")) return;
  event.preventDefault();
  const box = graph.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
for (const button of all("[data-zoom]")) {
  button.addEventListener("click", () => {
    const what = button.dataset.zoom;
    if (what === "in") zoom(1.4);
    else if (what === "out") zoom(1 / 1.4);
    else if (what === "fit") fit();
    else setFull(!graph.parentElement.classList.contains("full"));
  });
}
function setFull(full) {
  const stage = graph.parentElement;
  stage.classList.toggle("full", full);
  const button = document.querySelector('[data-zoom="full"]');
  button.setAttribute("aria-pressed", String(full));
  if (full) graph.focus();
  else button.focus();
}

/* ---- the graph: what is selected ---- */
const boxes = new Map(); /* layer -> its box */
for (const box of graph.querySelectorAll(".b")) {
  box.setAttribute("role", "button");
  box.setAttribute("tabindex", "-1");
  const layer = layerOf(box);
  if (layer !== null) boxes.set(layer, box);
  box.setAttribute("aria-label", layer !== null ? `${data.layers[layer].op} ${data.layers[layer].name}, ${data.layers[layer].label}`
    : `${box.querySelector(".o").textContent} ${data.tensors[Number(box.dataset.t)].name}`);
}
function layerOf(box) { /* null for graph inputs and outputs */
  return box.id ? Number(box.id.slice("layer-".length)) : null;
}
/* An operator's name ends before the mark, and inside the box where it is drawn larger. */
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();
function wide(text, font) {
  const key = `${font} ${text}`;
  if (!widths.has(key)) {
    pen.font = font;
    widths.set(key, pen.measureText(text).width);
  }
  return widths.get(key);
}
function fontOf(selector) {
  const element = graph.querySelector(selector);
  if (!element) return "";
  const style = getComputedStyle(element);
  return `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
}
graph.classList.remove("far", "mid");
const fonts = { o: fontOf(".b .o"), m: fontOf(".b .m") };
show();
for (const [layer, box] of boxes) {
  const room = Math.min(140 - wide(data.layers[layer].mark, fonts.m), 124);
  let name = data.layers[layer].op;
  if (wide(name, fonts.o) > room) {
    while (name.length > 1 && wide(`${name}\u2026`, fonts.o) > room) name = name.slice(0, -1);
    name += "\u2026";
  }
  const text = box.querySelector(".o");
  if (text.textContent !== name) text.textContent = name;
}
const edges = new Map();
for (const edge of all("[data-t]", graph)) {
  const tensor = Number(edge.dataset.t);
  if (!edges.has(tensor)) edges.set(tensor, []);
  edges.get(tensor).push(edge);
}
const panel = byId("panel");
let current = null; /* {layer} or {tensor} */

function link(name, hash) {
  const anchor = make("a", name, "name");
  anchor.href = hash;
  return anchor;
}
function scaleText(tensor) {
  return tensor.scale || "no scale";
}
function tensorItem(index) {
  const tensor = data.tensors[index];
  const item = make("li");
  item.append(link(tensor.name, `#tensor-${index}`), make("br"), make("span", scaleText(tensor), "dim"));
  if (tensor.hex) item.append(make("span", "  "), make("code", tensor.hex), copyButton(tensor.hex, "the hex"));
  return item;
}
function list(title, items) {
  if (!items.length) return [];
  const ul = make("ul");
  ul.append(...items);
  return [make("h4", title), ul];
}
function layerItem(index) {
  const item = make("li");
  item.append(link(data.layers[index].name, `#layer-${index}`), make("span", `  ${data.layers[index].label}`, "dim"));
  return item;
}
function showLayer(index) {
  const layer = data.layers[index];
  const parts = [make("h3", layer.op), make("p", layer.name, "name")];
  parts.push(make("p", layer.device && layer.device !== layer.label ? `${layer.label} \u00b7 ${layer.device}` : layer.label));
  parts.push(make("p", layer.reason, `why ${layer.kind}`));
  if (layer.cure) parts.push(make("p", `Cure: ${layer.cure}.`));
  if (layer.cause >= 0) {
    const cause = make("p", "Root cause: ");
    cause.append(link(data.tensors[layer.cause].name, `#tensor-${layer.cause}`));
    parts.push(cause);
  }
  parts.push(make("p", `${layer.macs} MACs${layer.share ? ` (${layer.share})` : ""}, ${layer.weights} weights`, "dim"));
  if (layer.cost) parts.push(make("p", layer.cost, "dim"));
  if (layer.db) parts.push(make("p", `Verify: ${layer.db === "equal" ? "equal" : `SQNR ${layer.db} dB`}`));
  parts.push(...list("DLA limits", layer.findings.map(([text, found, source, status]) => {
    const item = make("li", `${text}: ${found}`);
    item.append(make("br"), make("span", status === "documented" ? source : `${source} [${status}]`, "dim"));
    return item;
  })));
  parts.push(...list("Reads", layer.inputs.map(tensorItem)), ...list("Makes", layer.outputs.map(tensorItem)));
  panel.replaceChildren(...parts);
}
function showTensor(index) {
  const tensor = data.tensors[index];
  const parts = [make("h3", "Tensor"), make("p", tensor.name, "name")];
  if (tensor.role) parts.push(make("p", tensor.shape ? `${tensor.role}, ${tensor.shape}` : tensor.role));
  if (!tensor.scale) parts.push(make("p", "No scale.", "why avoidable"));
  else {
    const value = make("p", "Scale ");
    value.append(make("code", tensor.scale), copyButton(tensor.scale, "the scale"));
    const hex = make("p", "Hex ");
    hex.append(make("code", tensor.hex), copyButton(tensor.hex, "the hex"));
    const rule = tensor.words ? `${tensor.rule}, ${tensor.words}` : tensor.rule;
    parts.push(value, hex, make("p", `${tensor.explicit ? "From the model" : "Inferred"} (${rule})`));
    if (tensor.node) parts.push(make("p", `at ${tensor.node}`, "name dim"));
    if (tensor.source && tensor.source !== tensor.name) parts.push(make("p", `from ${tensor.source}`, "name dim"));
  }
  if (tensor.producer >= 0) parts.push(...list("Made by", [layerItem(tensor.producer)]));
  parts.push(...list("Read by", tensor.readers.map(layerItem)));
  panel.replaceChildren(...parts);
}
function mark(elements) {
  for (const old of all(".on")) old.classList.remove("on");
  for (const element of elements) element.classList.add("on");
}
function bring(element) {
  const box = element.getBBox();
  const at = element.transform.baseVal.consolidate();
  const x = box.x + box.width / 2 + (at ? at.matrix.e : 0);
  const y = box.y + box.height / 2 + (at ? at.matrix.f : 0);
  if (view.scale < 0.8) view.scale = 1;
  fitted = false;
  view.x = x - size.width / view.scale / 2;
  view.y = y - size.height / view.scale / 2;
  show();
}
function select(kind, index, centre) {
  const rows = kind === "layer" ? data.layers : data.tensors;
  if (!rows[index]) return;
  current = { kind, index };
  let target;
  if (kind === "layer") {
    const layer = data.layers[index];
    target = boxes.get(index);
    mark([target, ...[...layer.inputs, ...layer.outputs].flatMap((t) => edges.get(t) || [])].filter(Boolean));
    showLayer(index);
  } else {
    const tensor = data.tensors[index];
    mark(edges.get(index) || []);
    target = boxes.get(tensor.producer) || (edges.get(index) || []).find((e) => e.matches(".b")) || boxes.get(tensor.readers[0]);
    showTensor(index);
  }
  if (target) {
    all('.b[tabindex="0"]', graph).forEach((box) => box.setAttribute("tabindex", "-1"));
    target.setAttribute("tabindex", "0");
    if (centre) bring(target);
  }
}
function fromHash(scroll) {
  const found = /^#(layer|tensor)-(\d+)$/.exec(location.hash);
  if (!found) return;
  select(found[1], Number(found[2]), true);
  if (scroll) byId("network").scrollIntoView({ block: "start" });
}
function go(hash) {
  history.pushState(null, "", hash);
  fromHash(false);
}
document.addEventListener("click", (event) => {
  const anchor = event.target.closest('a[href^="#layer-"], a[href^="#tensor-"]');
  if (!anchor) return;
  event.preventDefault();
  history.pushState(null, "", anchor.getAttribute("href"));
  fromHash(!graph.parentElement.contains(anchor));
});
window.addEventListener("popstate", () => fromHash(true));
graph.addEventListener("click", (event) => {
  if (moved > 4) return;
  const box = event.target.closest(".b");
  const line = event.target.closest("[data-t]");
  if (!box && !line) return;
  const [kind, index] = box && box.id ? ["layer", layerOf(box)] : ["tensor", Number(line.dataset.t)];
  history.replaceState(null, "", `#${kind}-${index}`);
  select(kind, index, false);
});
graph.addEventListener("dblclick", (event) => {
  const box = graph.getBoundingClientRect();
  zoom(view.scale < midBelow ? 1 / view.scale : 1.6, event.clientX - box.left, event.clientY - box.top);
});

/* ---- the graph: keys ---- */
function neighbour(key) {
  if (!current) return boxes.keys().next().value;
  const [layers, tensors] = [data.layers, data.tensors];
  if (current.kind === "tensor") {
    const tensor = tensors[current.index];
    return key === "ArrowUp" ? tensor.producer : tensor.readers[0];
  }
  const layer = layers[current.index];
  if (key === "ArrowDown") return layer.outputs.flatMap((t) => tensors[t].readers)[0];
  if (key === "ArrowUp") return layer.inputs.map((t) => tensors[t].producer).find((p) => p >= 0);
  const order = Array.from(boxes.keys());
  return order[order.indexOf(current.index) + (key === "ArrowRight" ? 1 : -1)];
}
graph.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.key.startsWith("Arrow")) {
    const next = neighbour(event.key);
    if (boxes.has(next)) {
      go(`#layer-${next}`);
      boxes.get(next).focus({ preventScroll: true });
    }
  } else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "0") fit();
  else if (event.key === "Enter" || event.key === " ") {
    const box = event.target.closest(".b");
    if (!box) return;
    if (box.id) go(`#${box.id}`);
    else go(`#tensor-${box.dataset.t}`);
  } else if (event.key === "Escape" && graph.parentElement.classList.contains("full")) setFull(false);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input")) return;
  event.preventDefault();
  byId("find-layer").focus();
});
const find = byId("find-layer");
let places = null; /* [hash, text] of what matches; null until the box was read again */
let found = -1;
function lookUp() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  found = -1;
  places = !words.length ? [] : [
    ...data.layers.map((x, i) => [`#layer-${i}`, `${x.name} ${x.op}`]),
    ...data.tensors.map((x, i) => [`#tensor-${i}`, x.name]),
  ].filter(([, text]) => words.every((w) => text.toLowerCase().includes(w)));
  const nothing = words.length > 0 && !places.length;
  byId("find-count").textContent = !words.length ? "" : nothing ? "Nothing found" : `${places.length} found`;
  byId("find-count").classList.toggle("none", nothing);
  find.setAttribute("aria-invalid", String(nothing));
}
function findNext(step) {
  if (places === null) lookUp();
  if (!places.length) return;
  found = found < 0 && step < 0 ? places.length - 1 : (found + step + places.length) % places.length;
  byId("find-count").textContent = `${found + 1} of ${places.length}`;
  go(places[found][0]);
}
find.addEventListener("input", lookUp);
find.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  findNext(event.shiftKey ? -1 : 1);
});
for (const button of all("[data-find]")) button.addEventListener("click", () => findNext(Number(button.dataset.find)));
for (const button of all("[data-next]")) { /* the legend goes from layer to layer of its kind */
  button.addEventListener("click", () => {
    const of = data.layers.flatMap((x, i) => (x.kind === button.dataset.next && boxes.has(i) ? [i] : []));
    if (!of.length) return;
    const at = current && current.kind === "layer" ? current.index : -1;
    const next = of.find((i) => i > at) ?? of[0];
    byId("said").textContent = `${of.indexOf(next) + 1} of ${of.length}`;
    go(`#layer-${next}`);
  });
}

/* ---- what is under the pointer ---- */
const tip = byId("tip");
function tipText(target) {
  const line = target.closest("[data-t]");
  if (line) {
    const tensor = data.tensors[Number(line.dataset.t)];
    const origin = tensor.rule ? `  (${tensor.explicit ? "model" : "inferred"}, ${tensor.rule})` : "";
    return `${tensor.name}\n${scaleText(tensor)}  ${tensor.hex}${origin}`;
  }
  const box = target.closest(".b");
  if (!box) return "";
  const layer = data.layers[layerOf(box)];
  return `${layer.op} ${layer.name}\n${layer.label}${layer.device ? `, ${layer.device}` : ""}: ${layer.reason}`;
}
graph.addEventListener("pointerover", (event) => {
  const text = tipText(event.target);
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 430)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - 90)}px`;
});
graph.addEventListener("pointerleave", () => { tip.hidden = true; });

/* ---- the chart of verify ---- */
const chart = byId("chart");
if (chart) {
  const points = JSON.parse(byId("points").textContent);
  let at = 0;
  const point = (index) => {
    at = Math.min(Math.max(index, 0), points.length - 1);
    const [x, , , text] = points[at];
    const cursor = byId("cursor");
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.setAttribute("visibility", "visible");
    byId("chart-at").textContent = text;
  };
  const follow = () => {
    const [, layer, tensor] = points[at];
    if (layer < 0 && tensor < 0) return;
    history.pushState(null, "", layer >= 0 ? `#layer-${layer}` : `#tensor-${tensor}`);
    fromHash(true);
  };
  chart.addEventListener("pointermove", (event) => {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 1000;
    let near = 0;
    points.forEach(([px], i) => { if (Math.abs(px - x) < Math.abs(points[near][0] - x)) near = i; });
    point(near);
  });
  chart.addEventListener("click", follow);
  chart.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") point(at + 1);
    else if (event.key === "ArrowLeft") point(at - 1);
    else if (event.key === "Enter") follow();
    else return;
    event.preventDefault();
  });
}

fromHash(true);
requestAnimationFrame(() => setTimeout(() => performance.mark("usable"))); /* once it has been painted */

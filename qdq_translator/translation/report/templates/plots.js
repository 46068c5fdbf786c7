
/* ==== plots: values into pixels of a drawing of 1000 by `height`; lines of the grid begin at `from` ==== */
function plot(svg, height, from, [left, right], [top, bottom], [x0, x1], [y0, y1]) {
  const place = (from, to, a, b) => (value) => Math.round(10 * (from + ((to - from) * (value - a)) / (b - a || 1))) / 10;
  const [across, up] = [place(left, right, x0, x1), place(bottom, top, y0, y1)];
  const add = (tag, attributes, text = "") => { const element = draw(tag, attributes, text); svg.append(element); return element; };
  return {
    across, up, add,
    row: (y, text) => { add("line", { class: "grid", x1: from, x2: 984, y1: up(y), y2: up(y) }); add("text", { class: "tick", x: from - 6, y: up(y) + 4 }, text); },
    column: (x, text, css = "tick mid") => add("text", { class: css, x: across(x), y: height - 22 }, text),
    line: (css, points) => add("polyline", { class: css, points: points.map(([x, y]) => `${across(x)},${up(y)}`).join(" ") }),
    at: (event) => { const box = svg.getBoundingClientRect(); return [((event.clientX - box.left) / box.width) * 1000, ((event.clientY - box.top) / box.height) * height]; },
  };
}
const visit = (layer, tensor) => { if (layer >= 0 || tensor >= 0) { history.pushState(null, "", layer >= 0 ? `#layer-${layer}` : `#tensor-${tensor}`); fromHash(true); } };

/* ---- the error along the network, of verify: 80 dB and more lie on the top line ---- */
const chart = byId("chart");
if (chart) {
  const { points, jumps } = raw.chart;
  const most = 80;
  const height = (db) => (db === "equal" ? most : db === "none left" ? 0 : Math.min(Math.max(db, 0), most));
  const { across, up, add, row, line, at } = plot(chart, 260, 46, points.length > 1 ? [46, 984] : [515, 984], [14, 224], [0, points.length - 1], [0, most]);
  for (const db of [0, 20, 40, 60, most]) row(db, db === most ? "80+" : db);
  add("text", { class: "tick start", x: 46, y: 250 }, "input");
  add("text", { class: "tick", x: 984, y: 250 }, "output");
  line("made", points.flatMap(({ made }, i) => (made === null ? [] : [[i, height(made)]])));
  line("read", points.map(({ read }, i) => [i, height(read)]));
  jumps.forEach((jump, number) => {
    const [x, y] = [across(jump.at), up(height(jump.made ? points[jump.at].made : points[jump.at].read))];
    if (!number) {
      add("line", { class: "firstjump", x1: x, x2: x, y1: 14, y2: 224 });
      add("text", { class: `jumptext${x > 560 ? " left" : ""}`, x: x + (x > 560 ? -8 : 8), y: 27 }, "largest jump");
    }
    add("path", { class: "jump", d: `M${x} ${y - 5}l6 10h-12z` }).append(draw("title", {}, jump.title));
  });
  const cursor = add("line", { id: "cursor", y1: 14, y2: 224, visibility: "hidden" });
  const words = (db) => (db === "equal" ? db : db === "none left" ? "nothing of the signal left" : `${db.toFixed(1)} dB`);
  let here = 0;
  const point = (index) => {
    here = Math.min(Math.max(index, 0), points.length - 1);
    const { name, read, made } = points[here];
    for (const [key, value] of [["x1", across(here)], ["x2", across(here)], ["visibility", "visible"]]) cursor.setAttribute(key, value);
    byId("chart-at").textContent = `${name}: ${words(read)} as read${made === null ? "" : `, ${words(made)} as made`}`;
  };
  const follow = () => visit(points[here].layer, points[here].tensor);
  chart.addEventListener("pointermove", (event) => {
    const [x] = at(event);
    point(points.reduce((near, _, i) => (Math.abs(across(i) - x) < Math.abs(across(near) - x) ? i : near), 0));
  });
  chart.addEventListener("click", follow);
  chart.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") point(here + 1);
    else if (event.key === "ArrowLeft") point(here - 1);
    else if (event.key === "Enter") follow();
    else return;
    event.preventDefault();
  });
}

/* ---- the roofline: MACs a byte against milliseconds, both logarithmic; layers that do not multiply are at the left edge ---- */
const roofline = byId("roofline");
if (roofline) {
  const shown = data.layers.filter((x) => x.ms && x.bytes);
  const powers = shown.map((x) => Math.log10(x.ms));
  const low = Math.floor(Math.min(...powers));
  const high = Math.max(Math.ceil(Math.max(...powers)), low + 1);
  const { across, up, add, row, column, at } = plot(roofline, 320, 72, [112, 970], [14, 280], [0, 4], [low, high]);
  for (let power = low; power <= high; power++) row(power, milliseconds(10 ** power));
  for (let power = 0; power <= 4; power++) column(power, (10 ** power).toLocaleString("en"));
  add("text", { class: "tick start", x: 60, y: 298 }, "none");
  add("text", { class: "tick", x: 984, y: 316 }, "MACs a byte");
  const place = (intensity) => across(Math.min(Math.log10(intensity), 4));
  if (raw.ridge >= 1) add("line", { class: "firstjump", x1: place(raw.ridge), x2: place(raw.ridge), y1: 14, y2: 280 });
  const dots = shown.map((x) => ({ layer: x, at: [(x.macs || 0) >= x.bytes ? place(x.macs / x.bytes) : 78, up(Math.log10(x.ms))] }));
  for (const device of ["dla-int8", "dla-fp16"]) {
    const mine = dots.filter(({ layer }) => layer.device === device);
    add("path", { class: `dots d-${device}`, d: mine.map((dot) => `M${dot.at.join(" ")}h0`).join("") });
  }
  const nearest = (event) => {
    const [x, y] = at(event);
    const far = (dot) => Math.hypot(dot.at[0] - x, dot.at[1] - y);
    const best = dots.reduce((a, b) => (far(b) < far(a) ? b : a));
    return far(best) < 14 ? best.layer : null;
  };
  roofline.addEventListener("pointermove", (event) => {
    const layer = nearest(event);
    showTip(layer ? `${layer.op} ${layer.name}: ${four((layer.macs || 0) / layer.bytes)} MACs a byte, ${costWords(layer)}` : "", event);
  });
  roofline.addEventListener("pointerleave", () => { tip.hidden = true; });
  roofline.addEventListener("click", (event) => { const layer = nearest(event); if (layer) visit(layer.index, -1); });
}

/* ---- what tune measured: cost against score ---- */
const tuned = byId("tuned");
if (tuned) {
  const { points, reference, least, axis } = raw.tuned;
  const [costs, scores] = [points.map((p) => p.cost), [...points.map((p) => p.score), reference]];
  const [x, y] = [[Math.min(...costs), Math.max(...costs)], [Math.min(...scores), Math.max(...scores)]];
  const { across, up, add, row, column, line } = plot(tuned, 320, 64, [74, 974], [22, 272], x, y);
  for (let i = 0; i <= 4; i++) {
    row(y[0] + ((y[1] - y[0]) * i) / 4, four(y[0] + ((y[1] - y[0]) * i) / 4));
    column(x[0] + ((x[1] - x[0]) * i) / 4, digits(x[0] + ((x[1] - x[0]) * i) / 4));
  }
  add("text", { class: "tick", x: 984, y: 316 }, axis);
  if (least !== null && least >= y[0]) add("line", { class: "firstjump", x1: 64, x2: 984, y1: up(least), y2: up(least) });
  line("front", points.filter((p) => p.front).sort((a, b) => a.front - b.front).map((p) => [p.cost, p.score]));
  for (const { cost, score, kind, title } of points) {
    add("circle", { class: `tuned t-${kind}`, cx: across(cost), cy: up(score), r: kind === "best" ? 7 : 5 }).append(draw("title", {}, title));
  }
}

/* ---- histograms of verify --audit: logarithmic heights, and what each channel of a weight reaches; of many, the largest of neighbours ---- */
const inside = (share) => 6 + 308 * share;
function area(svg, heights, width = 1) {
  const most = Math.max(0, ...heights) || 1;
  const one = (value) => String(Math.round(10 * value) / 10);
  const path = heights.map((value, i) => `V${one(76 - (68 * value) / most)}H${one(inside((width * (i + 1)) / heights.length))}`);
  svg.append(draw("path", { class: "hist", d: `M6 76${path.join("")}V76Z` }), draw("line", { class: "axis", x1: 6, x2: 314, y1: 76, y2: 76 }));
}
function ends(svg, first, last) {
  svg.append(draw("text", { class: "tick start", x: 6, y: 91 }, first), draw("text", { class: "tick", x: 314, y: 91 }, last));
}
const logarithms = (counts) => counts.map((count) => Math.log1p(count));
const upright = (css, x) => draw("path", { class: css, d: `M${x} 4V76` });
all(".plot[data-tensor]").forEach((figure, i) => {
  const { histogram, amax, best_amax: best } = raw.audit[i];
  const span = Math.max(histogram.end, amax, best) || 1;
  const svg = figure.querySelector("svg");
  area(svg, logarithms(histogram.counts), histogram.end / span);
  svg.append(upright("bestline", inside(best / span)), upright("clipline", inside(amax / span)));
  ends(svg, "0", four(span));
});
all(".plot[data-weight]").forEach((figure, i) => {
  const { channel_amax: amax, worst_channel: worst, one_scale: same, histogram } = raw.weightPlots[i];
  const [channels, values] = figure.querySelectorAll("svg");
  const each = Math.ceil(amax.length / 256);
  const bars = Array.from({ length: Math.ceil(amax.length / each) }, (_, bar) => Math.max(...amax.slice(bar * each, (bar + 1) * each)));
  area(channels, bars);
  channels.append(draw("rect", { class: "worst", x: inside(Math.floor(worst / each) / bars.length), width: Math.max(308 / bars.length, 1.5), y: 4, height: 72 }));
  if (same) channels.append(draw("path", { class: "clipline", d: "M6 8H314" }));
  ends(channels, "channel 0", amax.length - 1);
  area(values, logarithms(histogram.counts));
  values.append(upright("clipline", 314));
  ends(values, "0", "1");
});

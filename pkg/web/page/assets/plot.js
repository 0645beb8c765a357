// Plots each unit's GPU memory over time, with the plateau marked. The server has
// made the lines; here they are only drawn.
"use strict";
(() => {
  const EVERY = 2000;      // ms between two fetches of a unit's samples
  const HEIGHT = 220;
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400]; // seconds
  const plots = new Map(); // by the place's id
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const COLOURS = ["load", "cudagraph", "spawn", "unattributed", "serving", "rest", "text"];
  const DASHES = [[], [10, 3], [2, 3]];
  const gib = (v) => (v == null ? "not known" : v.toFixed(1) + " GiB");
  const elapsed = (s) => (s < 100 ? Math.round(s) + "s" : s < 6000 ? Math.round(s / 6) / 10 + "m" : Math.round(s / 360) / 10 + "h");

  function note(place, text) {
    const p = document.createElement("p");
    p.className = "dim";
    p.textContent = text;
    place.replaceChildren(p);
  }

  function drawPlateaus(u, levels) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ctx.fillStyle = css("plateau");
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.lineWidth = 1.5 * devicePixelRatio;
    ctx.font = 12 * devicePixelRatio + "px system-ui, sans-serif";
    ctx.textBaseline = "bottom";
    for (const l of levels) {
      const y = u.valToPos(l.y, "y", true);
      const x = l.from == null ? bbox.left : Math.max(bbox.left, u.valToPos(l.from, "x", true));
      ctx.beginPath();
      ctx.moveTo(x, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      const most = bbox.left + bbox.width - ctx.measureText(l.text).width;
      ctx.fillText(l.text, Math.max(bbox.left, Math.min(x, most)), y - 3 * devicePixelRatio);
    }
    ctx.restore();
  }

  function options(place, p) {
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: css("text"), grid: { stroke: css("line"), width: 1 }, ticks: { stroke: css("line"), width: 1 }, font, labelFont: font };
    return {
      width: Math.max(place.clientWidth, 200), height: HEIGHT,
      scales: { x: { time: false }, y: { range: (u, lo, hi) => [0, p.total > 0 ? p.total : Math.max(hi * 1.15, 1)] } },
      axes: [
        { ...axis, values: (u, vs) => vs.map((v) => elapsed(v)), incrs: STEPS, size: 30 },
        { ...axis, values: (u, vs) => vs.map(String), label: "GiB", labelSize: 16, size: 44, space: 28 },
      ],
      series: [
        { label: "since the first sample", value: (u, v) => elapsed(v ?? u.data[0].at(-1)) },
        ...p.lines.map((l, i) => ({
          label: l.label, stroke: css(l.kind === "others" ? "foreign" : COLOURS[i % COLOURS.length]),
          dash: l.kind === "others" ? [6, 4] : DASHES[i % DASHES.length], width: 2,
          points: { show: p.x.length < 2 }, value: (u, v, i, at) => gib(at == null ? u.data[i].at(-1) : v),
        })),
      ],
      cursor: { drag: { x: false, y: false } },
      hooks: { draw: [(u) => drawPlateaus(u, p.levels)] },
    };
  }

  function draw(place, p) {
    if (!p.lines.length) return forget(place, p.text);
    const data = [p.x, ...p.lines.map((l) => l.y)];
    // A line that comes or goes, or another start, is another plot.
    const shape = JSON.stringify([p.key, p.total, p.lines.map((l) => l.label), p.levels, css("text"), place.clientWidth]);
    const old = plots.get(place.id);
    if (old && old.shape === shape && place.contains(old.u.root)) {
      old.u.setData(data);
    } else {
      if (old) old.u.destroy();
      place.replaceChildren();
      plots.set(place.id, { shape, u: new uPlot(options(place, p), data, place) });
    }
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", p.text);
  }

  function forget(place, text) {
    const old = plots.get(place.id);
    if (old) old.u.destroy();
    plots.delete(place.id);
    place.removeAttribute("role");
    place.removeAttribute("aria-label");
    note(place, text);
  }

  const asked = new WeakMap();

  async function load(place) {
    asked.set(place, Date.now());
    try {
      const r = await fetch("page/memory?unit=" + encodeURIComponent(place.dataset.unit), { cache: "no-store" });
      if (r.ok) draw(place, await r.json());
    } catch {
      // The page says that the connection is lost; the plot stays as it was.
    }
  }

  // Only what can be seen is drawn.
  function loadAll(always) {
    if (document.hidden) return;
    for (const place of document.querySelectorAll(".plot")) {
      const old = Date.now() - (asked.get(place) || 0);
      if (place.clientWidth > 0 && (always || old >= EVERY)) load(place);
    }
  }

  let resized = 0;
  addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(() => loadAll(true), 200); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => loadAll(true));
  document.addEventListener("placed", () => loadAll(false));
  document.addEventListener("toggle", (e) => { if (e.target.open) loadAll(false); }, true);
  loadAll(true);
})();

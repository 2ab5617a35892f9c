"use strict";
(() => {
  const json = (id) => { const found = document.getElementById(id); return found && JSON.parse(found.textContent); };
  const axis = json("axis-data"), packed = json("tables-data"), charts = json("charts-data");
  const KEYS = ["calls", "failed", "waited", "p50", "p95", "p99", "max", "call_bytes", "reply_bytes"];
  const media = matchMedia("(prefers-color-scheme: dark)");

  // Numbers, as the terminal has them.
  const figures = (number) => number >= 99.95 ? Math.round(number).toLocaleString("en-US")
    : number >= 9.995 ? number.toFixed(1) : number.toFixed(2);
  const count = (number) => Math.round(number).toLocaleString("en-US");
  function duration(ns) {
    for (const [least, unit, name] of [[172800, 86400, "d"], [7200, 3600, "h"], [120, 60, "min"]])
      if (ns >= least * 1e9) return `${figures(ns / unit / 1e9)} ${name}`;
    for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
      if (ns >= unit * 0.9995) return `${figures(ns / unit)} ${name}`;
    return ns ? `${Math.round(ns)} ns` : "0";
  }
  function size(bytes) {
    for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
      if (bytes >= unit * 0.9765) return `${figures(bytes / unit)} ${name}`;
    return `${Math.round(bytes)} B`;
  }
  const percent = (part) => !part ? "–" : part >= 0.0995 ? `${(100 * part).toFixed(0)}%` : `${+(100 * part).toPrecision(2)}%`;

  // Tables: sort and filter.
  const tables = [...document.querySelectorAll("table.sortable")];
  const value = (row, at) => at ? Number(row.cells[at].dataset.v) : row.cells[0].textContent;
  function sort(table, at, descending) {
    const rows = [...table.tBodies[0].rows];
    const order = new Intl.Collator("en", { numeric: true });
    rows.sort((one, other) => {
      const last = one.classList.contains("others") - other.classList.contains("others");
      if (last) return last;
      const found = at ? value(one, at) - value(other, at) : order.compare(value(one, 0), value(other, 0));
      return (descending ? -found : found) || one.dataset.row - other.dataset.row;
    });
    table.tBodies[0].append(...rows);
    [...table.tHead.rows[0].cells].forEach((head, index) =>
      head.setAttribute("aria-sort", index !== at ? "none" : descending ? "descending" : "ascending"));
  }
  function sortedBy(table) {
    const heads = [...table.tHead.rows[0].cells];
    const at = heads.findIndex((head) => head.getAttribute("aria-sort") !== "none");
    return [at, heads[at].getAttribute("aria-sort") === "descending"];
  }
  function filter(table) {
    const input = document.getElementById(`filter-${table.id}`), wanted = input.value.toLowerCase();
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      row.hidden = row.classList.contains("empty") || !row.cells[0].textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    document.getElementById(`shown-${table.id}`).textContent = `${count(shown)} of ${count(table.tBodies[0].rows.length)} rows`;
  }
  for (const table of tables) {
    [...table.tHead.rows[0].cells].forEach((head, at) => head.querySelector("button").addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      sort(table, at, now === "none" ? at > 0 : now === "ascending");
    }));
    document.getElementById(`filter-${table.id}`).addEventListener("input", () => filter(table));
    for (const row of table.tBodies[0].rows)
      row.whole = [...row.cells].slice(1).map((cell) => [cell.dataset.v, cell.textContent]);
    filter(table);
  }

  // A span of time: the tables are summed anew from their cells.
  const KINDS = [Uint16Array, Uint16Array, Int16Array, Uint32Array, Uint32Array, Float32Array, Float32Array, Float32Array];
  const unpacked = (text, kind) => new kind(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  const cells = new Map();
  for (const one of packed ? packed.tables : [])
    cells.set(one.id, { rows: one.rows, columns: one.columns.map((text, at) => unpacked(text, KINDS[at])) });
  const edge = (bin) => 2 ** (bin >> 3) * (1 + (bin & 7) / 8);

  function percentiles(bins, counts) {
    const order = [...bins.keys()].sort((one, other) => bins[one] - bins[other]);
    const total = counts.reduce((sum, one) => sum + one, 0);
    if (!total) return [-1, -1, -1, -1];
    return [50, 95, 99, 100].map((part) => {
      let rank = Math.ceil(total * part / 100);
      for (const at of order) {
        rank -= counts[at];
        if (rank <= 0) return part === 100 ? edge(bins[at] + 1) : (edge(bins[at]) + edge(bins[at] + 1)) / 2;
      }
      return -1;
    });
  }
  function summed(table, first, behind) {
    const { rows, columns } = cells.get(table.id), [row, interval, bin, ...sums] = columns;
    const found = Array.from({ length: rows }, () => ({ sums: [0, 0, 0, 0, 0], bins: [], counts: [] }));
    for (let at = 0; at < row.length; at++) {
      if (interval[at] < first || interval[at] >= behind) continue;
      const one = found[row[at]];
      sums.forEach((column, index) => { one.sums[index] += column[at]; });
      if (bin[at] >= 0) { one.bins.push(bin[at]); one.counts.push(sums[0][at]); }
    }
    return found;
  }
  function show(table, span) {
    const rows = [...table.tBodies[0].rows];
    const found = span && summed(table, ...span);
    const waited = found && found.reduce((sum, one) => sum + one.sums[4], 0);
    for (const row of rows) {
      const one = found && found[row.dataset.row];
      const values = !one ? row.whole : (() => {
        const [calls, failed, up, down, time] = one.sums, latencies = percentiles(one.bins, one.counts);
        return [[calls, count(calls)], [failed, failed ? count(failed) : "–"], [time, percent(waited ? time / waited : 0)],
          ...latencies.map((ns) => [ns, ns < 0 ? "–" : `≈ ${duration(ns)}`]), [up, size(up)], [down, size(down)]];
      })();
      KEYS.forEach((_, at) => {
        const cell = row.cells[at + 1];
        [cell.dataset.v, cell.textContent] = values[at];
      });
      row.classList.toggle("empty", Boolean(one) && !one.sums[0]);
    }
    sort(table, ...sortedBy(table));
    filter(table);
  }

  let figuresDrawn = [];
  const inputs = ["span-from", "span-to"].map((id) => document.getElementById(id));
  const state = document.getElementById("span-state");
  function select(from, to) {
    let span = null, shown = null;
    if (from !== null) {
      // Widened to whole intervals.
      const width = packed.width, last = Math.max(1, Math.ceil((axis.span - axis.offset) / width));
      const first = Math.min(last - 1, Math.max(0, Math.floor((from * axis.unit - axis.offset) / width)));
      const behind = Math.max(first + 1, Math.min(last + 1, Math.ceil((to * axis.unit - axis.offset) / width)));
      span = [first, behind];
      shown = span.map((at) => Math.min(axis.span, Math.max(0, (axis.offset + at * width))) / axis.unit);
    }
    for (const table of tables) show(table, span);
    for (const figure of figuresDrawn)
      for (const one of figure.center)
        if (one.name === "span") {
          if (shown) [one.left, one.right] = shown;
          one.visible = Boolean(shown);
        }
    state.classList.toggle("selected", Boolean(shown));
    const words = shown && shown.map((at) => Number(at.toPrecision(6)));
    state.textContent = shown ? `The tables show RPCs that ended from ${words[0]} to ${words[1]} ${axis.name}; their latencies are good to 7%.`
      : "The tables show the whole capture.";
    inputs.forEach((input, at) => { input.value = words ? words[at] : ""; });
  }

  // Charts: colours follow the page's.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const parsed = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  function palette() {
    const low = parsed(colour("heat-low")), high = parsed(colour("heat-high"));
    return Array.from({ length: 256 }, (_, at) => "#" + low.map((one, index) =>
      Math.round(one + (high[index] - one) * at / 255).toString(16).padStart(2, "0")).join(""));
  }
  function paint() {
    const ink = colour("ink"), dim = colour("dim"), grid = colour("grid"), rule = colour("rule");
    document.documentElement.classList.toggle("drawn-dark", media.matches);
    for (const figure of figuresDrawn) {
      figure.outline_line_color = rule;
      figure.title.text_color = ink;
      for (const one of [...figure.below, ...figure.left])
        Object.assign(one, { axis_label_text_color: dim, major_label_text_color: dim, axis_line_color: rule, major_tick_line_color: rule });
      for (const one of [...figure.center, ...figure.above]) {
        if (one.name === "span") Object.assign(one, { fill_color: colour("span"), line_color: colour("span") });
        else if (one.type === "Grid") one.grid_line_color = grid;
        else if (one.type === "Legend") one.label_text_color = ink;
      }
      for (const one of figure.renderers) {
        if (one.name === "heat") {
          one.glyph.fill_color.transform.palette = palette();
          continue;
        }
        const own = colour(one.name);
        for (const glyph of [one.glyph, one.nonselection_glyph, one.selection_glyph, one.muted_glyph]) {
          if (!glyph || !glyph.properties) continue;
          if (glyph.properties.line_color && one.name !== "retransmitted") glyph.line_color = own;
          if (glyph.properties.fill_color) glyph.fill_color = own;
        }
      }
    }
  }
  async function draw() {
    const views = await Bokeh.embed.embed_item(charts, "charts");
    const document_ = Bokeh.documents[Bokeh.documents.length - 1];
    figuresDrawn = document_.roots()[0].children.map(([figure]) => figure);
    paint();
    for (const figure of figuresDrawn) {
      figure.on_event("selectiongeometry", (event) => {
        if (!event.final) return;
        const { x0, x1 } = event.geometry;
        select(Math.min(x0, x1), Math.max(x0, x1));
      });
      figure.on_event("reset", () => select(null));
    }
    document.getElementById("charts").dataset.drawn = String(Boolean(views));
  }
  if (charts) {
    draw();
    media.addEventListener("change", paint);
    document.getElementById("span").addEventListener("submit", (event) => {
      event.preventDefault();
      const [from, to] = inputs.map((input) => input.value === "" ? null : Number(input.value));
      if (from === null && to === null) select(null);
      else select(Math.min(from ?? 0, to ?? Infinity), Math.max(from ?? 0, to ?? axis.span / axis.unit));
    });
    document.getElementById("span-clear").addEventListener("click", () => select(null));
    document.addEventListener("keydown", (event) => { if (event.key === "Escape") select(null); });
  }

  // A link to an RPC opens it; on paper the statements are explained.
  function reveal() {
    const found = location.hash.startsWith("#rpc-") && document.getElementById(location.hash.slice(1));
    if (found) { found.open = true; found.scrollIntoView(); }
  }
  addEventListener("hashchange", reveal);
  reveal();
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("#diagnosis details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });
})();

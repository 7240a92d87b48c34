// The matrix of services and clusters. Cells are drawn on a canvas; rows are a few recycled elements, each
// with a sentence that says what its cells show.

import { h, plural, setText } from "./dom.js";
import { cell, FAIL, list, NONE, OK, SHAPES, targets, UNKNOWN, VERDICTS, WARN } from "./model.js";

const SPARE = 4; // rows drawn beyond what is visible
const MIN_CELL = 5, MAX_CELL = 132;
const FILTERS = { fail: FAIL, warn: WARN, unknown: UNKNOWN, ok: OK };

export class Matrix {
  constructor(parent, app) {
    this.app = app;
    this.parent = parent;
    this.pool = [];
    this.shown = [];
    this.build();
  }

  build() {
    const set = (name) => (e) => this.app.set({ [name]: e.target.value });
    this.search = h("input", { type: "search", id: "find", placeholder: "namespace/name or code", "aria-label": "Find", input: set("q") });
    this.namespace = h("select", { "aria-label": "Namespace", input: set("ns") });
    this.cluster = h("select", { "aria-label": "Cluster", input: set("cluster") });
    this.verdict = h("select", { "aria-label": "Verdict", input: set("verdict") },
      h("option", { value: "" }, "all verdicts"), ...Object.entries(FILTERS).map(([name, v]) => h("option", { value: name }, `${SHAPES[v]} ${VERDICTS[v]}`)));
    this.all = h("input", { type: "checkbox", id: "only", input: (e) => this.app.set({ all: e.target.checked ? "" : "1" }) });
    this.summary = h("p", { class: "summary", id: "matrix-summary" });
    this.more = h("button", { type: "button", class: "more", click: () => this.app.set({ all: this.app.route.params.get("all") ? "" : "1" }) });
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.head = h("canvas", { "aria-hidden": "true" });
    this.body = h("div", { class: "rows", role: "rowgroup" }, this.canvas);
    this.headBox = h("div", { class: "heads", role: "presentation" }, this.head);
    this.box = h("div", {
      class: "matrix", tabindex: "0", role: "grid", "aria-label": "Services and clusters", "aria-describedby": "matrix-help",
      scroll: () => this.paint(), keydown: (e) => this.key(e), click: (e) => this.click(e), dblclick: () => this.open(),
      mousemove: (e) => this.hover(e), focus: () => this.select(this.row ?? 0, this.column, false),
    }, this.headBox, this.body);
    this.cellLine = h("p", { class: "cell-line", "aria-hidden": "true" });
    this.parent.replaceChildren(
      h("h2", { class: "hidden" }, "Services"),
      h("div", { class: "filters", role: "search" }, this.search, this.namespace, this.cluster, this.verdict,
        h("label", { for: "only", class: "check" }, this.all, "only trouble")),
      this.summary, this.box, this.cellLine, this.more,
      h("p", { class: "legend" }, ...[OK, WARN, FAIL, UNKNOWN].map((v) => h("span", {}, h("span", { class: `v${v} shape`, "aria-hidden": "true" }, SHAPES[v]), ` ${VERDICTS[v]}`)),
        h("span", {}, h("span", { class: "mark top", "aria-hidden": "true" }), " exports (line above)"),
        h("span", {}, h("span", { class: "mark bottom", "aria-hidden": "true" }), " imports (line below)")),
      h("p", { class: "hidden", id: "matrix-help" }, "Arrow keys move between services and clusters. Enter opens the service. Slash goes to the search."));
  }

  find() {
    this.search.focus();
  }

  // filter returns the services to show, those with trouble first, and how many are folded.
  filter() {
    const { model, route: { params } } = this.app;
    const q = (params.get("q") || "").toLowerCase(), ns = params.get("ns") || "", verdict = FILTERS[params.get("verdict")];
    const column = params.get("cluster") ? model.columns.get(params.get("cluster")) : undefined;
    const all = params.get("all") === "1" || verdict === OK;
    const buckets = { [FAIL]: [], [WARN]: [], [UNKNOWN]: [], [OK]: [] };
    let folded = 0;
    for (const name of model.services()) {
      if (ns && !name.startsWith(`${ns}/`)) continue;
      const row = model.rows.get(name);
      const v = column === undefined ? row.v : cell(row, column).verdict;
      if (column !== undefined && v === NONE) continue;
      if (verdict !== undefined && v !== verdict) continue;
      if (q && !name.includes(q) && !(row.f || []).some((f) => f.code.includes(q))) continue;
      if (v === OK && !all) {
        folded++;
        continue;
      }
      buckets[v]?.push(name);
    }
    const shown = [...buckets[FAIL], ...buckets[WARN], ...buckets[UNKNOWN], ...buckets[OK]];
    return { shown, folded, columns: column === undefined ? model.clusters.map((_, i) => i) : [column] };
  }

  drawFilters() {
    const { model, route: { params } } = this.app;
    const options = (select, key, first, values) => {
      const want = [first, ...values].join("\n");
      if (select.dataset.options !== want) {
        select.dataset.options = want;
        select.replaceChildren(h("option", { value: "" }, first), ...values.map((v) => h("option", { value: v }, v)));
      }
      select.value = params.get(key) || "";
    };
    options(this.namespace, "ns", "all namespaces", [...new Set(model.services().map((n) => n.slice(0, n.indexOf("/"))))]);
    options(this.cluster, "cluster", "all clusters", model.clusters.map((c) => c.id));
    this.verdict.value = params.get("verdict") || "";
    if (document.activeElement !== this.search) this.search.value = params.get("q") || "";
    this.all.checked = params.get("all") !== "1";
  }

  // anchors returns the services of the view, that which should stay where it is first: the selected one if it
  // is in sight, or else that at the top. The others stand in for one that goes.
  anchors() {
    const first = Math.floor(this.box.scrollTop / this.height);
    const last = Math.floor((this.box.scrollTop + this.box.clientHeight - this.headHeight) / this.height);
    const seen = this.shown.slice(first, last).map((name, i) => ({ name, top: (first + i) * this.height - this.box.scrollTop }));
    const selected = this.selectedName();
    return [...seen.filter((s) => s.name === selected), ...seen];
  }

  // draw draws the matrix. What the user looks at stays in its place when other services come or go above it.
  draw(order) {
    const { model } = this.app;
    this.drawFilters();
    this.layout();
    if (order || this.model !== model) {
      const anchors = this.box.scrollTop > 0 ? this.anchors() : [];
      const selected = this.selectedName();
      Object.assign(this, this.filter());
      this.index = new Map(this.shown.map((name, i) => [name, i]));
      this.model = model;
      this.layout();
      this.body.style.height = `${this.shown.length * this.height}px`;
      const anchor = anchors.find((a) => this.index.has(a.name));
      if (anchor) this.box.scrollTop = this.index.get(anchor.name) * this.height - anchor.top;
      this.row = this.index.get(selected);
      this.column = this.columns.includes(model.columns.get(this.app.route.params.get("col"))) ? model.columns.get(this.app.route.params.get("col")) : null;
      this.box.setAttribute("aria-rowcount", this.shown.length);
      this.box.setAttribute("aria-colcount", this.columns.length + 1);
      const trouble = this.shown.filter((n) => model.rows.get(n).v !== OK).length;
      const none = this.shown.length ? "" : "No service with trouble here. ";
      setText(this.summary, `${none}${plural(trouble, "service")} with trouble, ${plural(this.shown.length, "service")} shown, ${plural(this.columns.length, "cluster")}.`);
      this.more.hidden = !this.folded && this.app.route.params.get("all") !== "1";
      setText(this.more, this.folded ? `Show ${plural(this.folded, "service")} without trouble` : "Fold services without trouble");
    }
    this.paint();
  }

  layout() {
    const narrow = this.parent.clientWidth < 640;
    const count = Math.max(1, (this.columns || this.app.model.clusters).length);
    this.height = narrow ? 58 : 26;
    this.names = narrow ? 0 : Math.min(260, Math.max(140, this.parent.clientWidth * 0.22));
    const room = this.box.clientWidth - this.names - (narrow ? 12 : Math.min(420, this.parent.clientWidth * 0.35));
    this.width = Math.max(MIN_CELL, Math.min(narrow ? 44 : MAX_CELL, Math.floor(room / count)));
    this.headHeight = this.width >= 12 ? (this.width >= 90 ? 22 : 64) : 6;
    this.box.classList.toggle("narrow", narrow);
    this.box.style.setProperty("--names", `${this.names}px`);
    this.box.style.setProperty("--cells", `${this.width * count}px`);
    this.box.style.setProperty("--row", `${this.height}px`);
    this.headBox.style.height = `${this.headHeight}px`;
    this.body.style.minWidth = this.headBox.style.minWidth = `${this.names + this.width * count + (narrow ? 0 : 160)}px`;
  }

  // paint draws what is visible.
  paint() {
    if (!this.model) return;
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - SPARE);
    const last = Math.min(this.shown.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.height) + SPARE);
    this.paintRows(first, last);
    this.paintCells(first, last);
    this.paintHead();
    if (this.row !== undefined && this.row !== null) this.cellLine.textContent = this.selectedText();
  }

  paintRows(first, last) {
    const rows = this.pool;
    while (rows.length < last - first) {
      const name = h("a", { class: "name", tabindex: "-1" });
      const text = h("span", { class: "text" });
      const el = h("div", { class: "row", role: "row" }, h("span", { role: "rowheader", class: "head" }, name), h("span", { role: "gridcell", class: "says" }, text));
      name.addEventListener("click", (e) => {
        e.stopPropagation(); // a click elsewhere in the row selects it
        if (e.ctrlKey || e.metaKey || e.shiftKey) return;
        e.preventDefault();
        this.app.openService(name.textContent);
      });
      rows.push({ el, name, text });
      this.body.append(el);
    }
    for (let k = 0; k < rows.length; k++) {
      const i = first + k, { el, name, text } = rows[k];
      el.hidden = i >= last;
      if (el.hidden) continue;
      const row = this.model.rows.get(this.shown[i]);
      if (!row) continue;
      el.style.transform = `translateY(${i * this.height}px)`;
      el.id = `row-${i}`;
      el.setAttribute("aria-rowindex", i + 1);
      const selected = i === this.row;
      if (selected !== (el.getAttribute("aria-selected") === "true")) el.setAttribute("aria-selected", selected);
      if (el.row === row) continue;
      el.row = row;
      const at = row.n.indexOf("/");
      setText(name, row.n);
      name.href = `/service/${encodeURIComponent(row.n.slice(0, at))}/${encodeURIComponent(row.n.slice(at + 1))}`;
      setText(text, `${SHAPES[row.v]} ${this.model.rowText(row)}`);
      el.dataset.verdict = row.v;
    }
  }

  // size fits a canvas to a place on the screen, in real pixels.
  size(canvas, width, height) {
    const ratio = devicePixelRatio || 1;
    const w = Math.max(1, Math.round(width * ratio)), t = Math.max(1, Math.round(height * ratio));
    if (canvas.width !== w || canvas.height !== t) {
      canvas.width = w;
      canvas.height = t;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const ctx = canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    return ctx;
  }

  colours() {
    const css = getComputedStyle(document.documentElement);
    const get = (name) => css.getPropertyValue(name).trim();
    return { text: get("--text"), muted: get("--muted"), select: get("--select"), line: get("--mark"),
      ink: [get("--text"), get("--ink1"), get("--ink2"), get("--ink3"), get("--text")], fill: [get("--v0"), get("--v1"), get("--v2"), get("--v3"), get("--v4")] };
  }

  paintCells(first, last) {
    const from = Math.floor(this.box.scrollLeft / this.width);
    const width = Math.min(this.box.clientWidth, this.columns.length * this.width), height = (last - first) * this.height;
    this.canvas.style.transform = `translate(${this.names + (this.box.classList.contains("narrow") ? 8 : 0) + from * this.width}px, ${first * this.height}px)`;
    const ctx = this.size(this.canvas, width, height);
    const colours = this.colours();
    const count = Math.min(this.columns.length - from, Math.ceil(width / this.width));
    const box = { w: this.width - (this.width > 8 ? 2 : 1), h: this.box.classList.contains("narrow") ? 20 : this.height - 6 };
    for (let i = first; i < last; i++) {
      const row = this.model.rows.get(this.shown[i]);
      if (!row) continue;
      const y = (i - first) * this.height + (this.box.classList.contains("narrow") ? 34 : 3);
      for (let k = 0; k < count; k++) {
        const at = this.columns[from + k];
        this.paintCell(ctx, colours, row, at, k * this.width, y, box);
        if (i === this.row && at === this.column) {
          ctx.strokeStyle = colours.select;
          ctx.lineWidth = 2;
          ctx.strokeRect(k * this.width - 1, y - 1, box.w + 2, box.h + 2);
        }
      }
    }
  }

  paintCell(ctx, colours, row, at, x, y, box) {
    const { verdict, exports, imports } = cell(row, at);
    ctx.fillStyle = colours.fill[verdict];
    if (verdict === NONE) {
      ctx.fillRect(x + box.w / 2 - 1, y + box.h / 2 - 1, 2, 2);
      return;
    }
    if (verdict === UNKNOWN && box.w >= 8) { // an outline: nothing is known
      ctx.strokeStyle = colours.fill[verdict];
      ctx.lineWidth = 1.5;
      ctx.strokeRect(x + 1, y + 1, box.w - 2, box.h - 2);
    } else {
      ctx.fillRect(x, y, box.w, box.h);
    }
    const edge = box.w > 8 ? 3 : 2;
    ctx.fillStyle = colours.line;
    if (exports) ctx.fillRect(x, y, box.w, edge);
    if (imports) ctx.fillRect(x, y + box.h - edge, box.w, edge);
    this.paintShape(ctx, colours, verdict, x + Math.min(box.w, 20) / 2, y + box.h / 2, Math.min(5, box.w / 2 - 0.5));
    if (box.w >= 44) {
      ctx.fillStyle = colours.ink[verdict];
      ctx.font = "11px system-ui, sans-serif";
      ctx.textBaseline = "middle";
      const text = this.sends(row, at, imports).find((text) => ctx.measureText(text).width <= box.w - 22);
      if (text) ctx.fillText(text, x + 20, y + box.h / 2 + 0.5);
    }
  }

  // sends returns texts about the clusters that one sends to, the longest first.
  sends(row, at, imports) {
    const to = targets(row, at);
    if (to === null) return ["→ some"];
    if (!to.length) return imports ? ["→ none"] : [];
    const names = to.map((t) => this.model.clusters[t].id);
    return [`→ ${names.join(", ")}`, `→ ${list(names, 2)}`, `→ ${plural(names.length, "cluster")}`, `→ ${names.length}`];
  }

  // paintShape draws the verdict as a shape, for those who do not tell the colours apart.
  paintShape(ctx, colours, verdict, x, y, r) {
    ctx.strokeStyle = ctx.fillStyle = colours.ink[verdict];
    ctx.lineWidth = r > 3 ? 2 : 1;
    ctx.beginPath();
    if (verdict === FAIL) {
      ctx.moveTo(x - r, y - r);
      ctx.lineTo(x + r, y + r);
      ctx.moveTo(x + r, y - r);
      ctx.lineTo(x - r, y + r);
      ctx.stroke();
    } else if (verdict === WARN) {
      ctx.moveTo(x, y - r);
      ctx.lineTo(x + r, y + r);
      ctx.lineTo(x - r, y + r);
      ctx.fill();
    } else if (verdict === OK && r > 3) {
      ctx.arc(x, y, r - 1.5, 0, 2 * Math.PI);
      ctx.fill();
    } else if (verdict === UNKNOWN && r > 2) {
      ctx.font = "bold 11px system-ui, sans-serif";
      ctx.textBaseline = "middle";
      ctx.fillText("?", x - 3, y + 1);
    }
  }

  paintHead() {
    const from = Math.floor(this.box.scrollLeft / this.width);
    const width = Math.min(this.box.clientWidth, this.columns.length * this.width);
    this.head.style.transform = `translateX(${this.names + (this.box.classList.contains("narrow") ? 8 : 0) + from * this.width}px)`;
    const ctx = this.size(this.head, width + 40, this.headHeight);
    const colours = this.colours();
    ctx.font = "11px system-ui, sans-serif";
    for (let k = 0; k < Math.min(this.columns.length - from, Math.ceil(width / this.width)); k++) {
      const at = this.columns[from + k], c = this.model.clusters[at];
      ctx.fillStyle = at === this.column ? colours.select : colours.text;
      if (this.width < 12) {
        if (c.verdict > OK || at === this.column) ctx.fillRect(k * this.width, 2, this.width - 1, 4);
        continue;
      }
      const text = `${c.verdict > OK ? `${SHAPES[c.verdict]} ` : ""}${c.id}`;
      if (this.width >= 90) {
        ctx.fillText(text, k * this.width + 2, 15, this.width - 4);
        continue;
      }
      ctx.save();
      ctx.translate(k * this.width + this.width / 2 + 3, this.headHeight - 3);
      ctx.rotate(-Math.PI / 3);
      ctx.fillText(text, 0, 0, 70);
      ctx.restore();
    }
  }

  // place returns the row and column under the pointer.
  place(event) {
    const rect = this.body.getBoundingClientRect();
    const row = Math.floor((event.clientY - rect.top) / this.height);
    const k = Math.floor((event.clientX - rect.left - this.names) / this.width);
    return { row: row >= 0 && row < this.shown.length ? row : null, column: k >= 0 && k < this.columns.length ? this.columns[k] : null };
  }

  hover(event) {
    const { row, column } = this.place(event);
    const shown = row === null ? null : this.model?.rows.get(this.shown[row]);
    this.cellLine.textContent = shown ? this.text(shown, column) : this.selectedText();
  }

  click(event) {
    const { row, column } = this.place(event);
    if (row !== null) this.select(row, column, true);
  }

  selectedName() {
    return this.app.route.params.get("sel") || "";
  }

  text(row, column) {
    return column === null || column === undefined ? `${row.n}: ${this.model.rowText(row)}` : `${row.n} in ${this.model.cellText(row, column)}`;
  }

  selectedText() {
    const row = this.row === null || this.row === undefined ? null : this.model?.rows.get(this.shown[this.row]);
    return row ? this.text(row, this.column) : "";
  }

  // select selects a cell, or a whole service if the column is null.
  select(row, column, scroll) {
    if (!this.shown.length) return;
    this.row = Math.max(0, Math.min(this.shown.length - 1, row));
    this.column = column ?? null;
    if (scroll) {
      const top = this.row * this.height, room = this.box.clientHeight - this.headHeight;
      if (top < this.box.scrollTop) this.box.scrollTop = top;
      if (top + this.height > this.box.scrollTop + room) this.box.scrollTop = top + this.height - room;
      const k = this.columns.indexOf(this.column);
      if (k >= 0) {
        const left = k * this.width, wide = this.box.clientWidth - this.names;
        if (left < this.box.scrollLeft) this.box.scrollLeft = left;
        if (left + this.width > this.box.scrollLeft + wide) this.box.scrollLeft = left + this.width - wide;
      }
    }
    this.app.set({ sel: this.shown[this.row], col: this.column === null ? "" : this.model.clusters[this.column].id });
    this.paint();
    this.box.setAttribute("aria-activedescendant", `row-${this.row}`);
    this.app.announce(this.selectedText());
  }

  open() {
    if (this.row !== null && this.row !== undefined && this.shown[this.row]) this.app.openService(this.shown[this.row]);
  }

  key(event) {
    if (event.target !== this.box || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1), row = this.row ?? -1;
    const k = this.column === null || this.column === undefined ? -1 : this.columns.indexOf(this.column);
    const side = (n) => (n < 0 ? null : this.columns[Math.min(this.columns.length - 1, n)]);
    const moves = {
      ArrowDown: [row + 1, this.column], ArrowUp: [row - 1, this.column], PageDown: [row + page, this.column], PageUp: [row - page, this.column],
      Home: [0, this.column], End: [this.shown.length - 1, this.column], ArrowRight: [row, side(k + 1)], ArrowLeft: [row, side(k - 1)],
    };
    if (event.key === "Enter") this.open();
    else if (moves[event.key]) this.select(...moves[event.key], true);
    else return;
    event.preventDefault();
  }
}

// One service: the hops of `seamark explain`, for each cluster, and everything else that it says.

import { get } from "./api.js";
import { ago, clock, copyButton, h, replaceKeepingFocus } from "./dom.js";
import { cell, list, SHAPES, split, UNKNOWN, VERDICTS } from "./model.js";

const HOPS = ["export", "broker", "merge", "address", "import", "data plane", "dns"];
const RANK = { fail: 3, warn: 2 };
const REFRESH = 2000;

export class Service {
  constructor(parent, app) {
    Object.assign(this, { parent, app, name: app.route.service, report: null, problem: "" });
    this.load();
    this.timer = setInterval(() => this.load(), REFRESH);
  }

  close() {
    clearInterval(this.timer);
    this.closed = true;
  }

  // changed reads the report again when the service changed.
  changed(delta) {
    if (delta.full || (delta.rows || []).some((r) => r.n === this.name)) this.load();
  }

  async load() {
    if (document.hidden || this.app.route.params.has("at")) return;
    try {
      const text = await (await get(`/api/service?name=${encodeURIComponent(this.name)}`)).text();
      if (text === this.text) return;
      this.text = text;
      this.report = JSON.parse(text);
      this.problem = "";
    } catch (err) {
      this.problem = err.message;
    }
    if (!this.closed) this.app.draw(false);
  }

  draw() {
    const { app: { model, route: { params } } } = this;
    const row = model.rows.get(this.name), moment = params.has("at");
    const report = moment ? null : this.report;
    const state = JSON.stringify([row, moment, this.text, this.problem, model.clusters.map((c) => [c.id, c.verdict])]);
    if (state === this.drawn) return;
    this.drawn = state;
    const { namespace, name } = split(this.name);
    const contexts = model.clusters.map((c) => c.context).filter(Boolean);
    const command = `seamark explain ${name} -n ${namespace}${contexts.length ? ` --contexts ${contexts.slice(0, 20).join(",")}` : ""}`;
    if (!row) {
      replaceKeepingFocus(this.parent, h("h2", {}, this.name),
        h("p", { class: "empty" }, moment ? "The service was not in the clusterset at that moment." : "The service is not in the clusterset: no cluster exports or imports it."),
        copyButton(command, `copy: ${command}`));
      return;
    }
    const findings = report ? report.findings : (row.f || []).map((f) => ({ ...f, cluster: (f.clusters || []).join(", ") }));
    replaceKeepingFocus(this.parent,
      h("h2", {}, h("span", { class: `v${row.v} shape`, "aria-hidden": "true" }, SHAPES[row.v]), ` ${this.name}: ${VERDICTS[row.v]}`),
      h("p", { class: "detail" }, report?.dnsName || "", " ", copyButton(command, `copy: ${command}`)),
      this.problem && h("p", { class: "notice v4" }, `The details cannot be read: ${this.problem}`),
      this.hops(model, row, findings, report),
      this.findings(findings),
      moment && h("p", { class: "empty" }, "Endpoints, the merged service and DNS are kept for the newest moment only."),
      report && this.details(report));
  }

  // hops draws the way of the service: a line for each cluster, a column for each hop.
  hops(model, row, findings, report) {
    const lines = [];
    model.clusters.forEach((c, i) => {
      const part = cell(row, i);
      const own = findings.filter((f) => f.severity !== "note" && (f.cluster || "").split(", ").includes(c.id));
      if (part.verdict === 0 && !own.length) return;
      lines.push({ c, part, own, i });
    });
    lines.sort((a, b) => [0, 1, 3, 4, 2][b.part.verdict] - [0, 1, 3, 4, 2][a.part.verdict] || Number(b.part.exports) - Number(a.part.exports));
    const whole = findings.filter((f) => !f.cluster && f.severity !== "note");
    const shown = lines.slice(0, 30);
    return h("section", {}, h("h3", {}, "The way of the service"),
      h("div", { class: "wide", tabindex: "0", "data-key": "hops", role: "region", "aria-label": "Hops of the service" },
        h("table", { class: "hops" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "cluster"), ...HOPS.map((hop) => h("th", { scope: "col" }, hop)))),
          h("tbody", {}, ...shown.map((line) => this.line(model, row, line, report)),
            whole.length > 0 && h("tr", {}, h("th", { scope: "row" }, "the whole service"), ...HOPS.map((hop) => this.hop(hop, whole, true)))))),
      lines.length > shown.length && h("p", {}, `${lines.length - shown.length} more clusters without trouble.`),
      h("p", { class: "detail" }, "● passed   ▲ warning   ✖ broken   ? unknown   – no part or not asked"));
  }

  line(model, row, { c, part, own, i }, report) {
    const importer = report?.importers.find((x) => x.cluster === c.id);
    const passes = (hop) => {
      if (part.verdict === UNKNOWN) return null;
      if (hop === "export" || hop === "broker") return part.exports;
      if (hop === "merge" || hop === "address") return part.exports || part.imports;
      if (hop === "import") return part.imports;
      if (!part.imports) return false;
      if (!importer) return "not kept";
      const says = hop === "data plane" ? importer.programmed : importer.dns;
      return says.startsWith("not asked") ? "not asked" : true;
    };
    return h("tr", { "data-cluster": c.id },
      h("th", { scope: "row" }, h("span", { class: `v${part.verdict} shape`, "aria-hidden": "true" }, SHAPES[part.verdict]), ` ${c.id}`,
        h("span", { class: "detail" }, ` ${model.cellText(row, i).split("; ")[1] || ""}`)),
      ...HOPS.map((hop) => this.hop(hop, own, passes(hop))));
  }

  hop(hop, findings, passes) {
    const here = findings.filter((f) => f.hop === hop).sort((a, b) => (RANK[b.severity] || 0) - (RANK[a.severity] || 0));
    if (here.length) {
      const v = RANK[here[0].severity];
      return h("td", { class: `hop v${v}` }, h("span", { class: "shape", "aria-hidden": "true" }, SHAPES[v]), h("span", { class: "hidden" }, VERDICTS[v]),
        " ", [...new Set(here.map((f) => f.code))].join(", "));
    }
    if (passes === null) return h("td", { class: "hop v4" }, "?", h("span", { class: "hidden" }, "unknown"));
    if (passes === true) return h("td", { class: "hop v1" }, h("span", { "aria-hidden": "true" }, "●"), h("span", { class: "hidden" }, "passed"));
    return h("td", { class: "hop none" }, h("span", { "aria-hidden": "true" }, "–"), h("span", { class: "hidden" }, passes || "no part"));
  }

  findings(findings) {
    if (!findings.length) return h("p", { class: "empty" }, "Nothing is wrong.");
    return h("section", {}, h("h3", {}, "What is wrong, and what to do"), h("ul", { class: "findings" }, ...findings.map((f) => {
      const v = RANK[f.severity] || 0;
      return h("li", { class: `finding v${v}`, "data-code": f.code },
        h("h4", {}, h("span", { class: "shape", "aria-hidden": "true" }, SHAPES[v]), h("span", { class: "hidden" }, v ? VERDICTS[v] : "note"),
          ` ${f.code}${f.cluster ? ` in ${list(f.cluster.split(", "), 6)}` : ""}: ${f.title}`),
        h("p", {}, f.detail),
        ...(f.waiting || []).map((w) => h("p", {}, `waits (${w.reconciler}, since ${clock(w.since)}): ${w.text}`)),
        h("p", { class: "cure" }, `do: ${f.cure} `, copyButton(f.cure)));
    })));
  }

  details(r) {
    const exporters = r.exporters.map((x) => [x.cluster, ago(x.exportedAt), x.heartbeat, x.service, `${x.readyEndpoints} of ${x.endpoints}`, x.state]);
    const importers = r.importers.map((x) => [x.cluster, x.state, (x.ips || []).join(", ") || "–",
      Object.entries(x.endpoints || {}).sort().map(([c, n]) => `${c}: ${n}`).join(", ") || "–", x.dataPlane || "–", x.programmed]);
    const m = r.merged;
    const merged = m ? [["type", `${m.type} (${m.mode}), as ${m.precedence[0]} has it: the oldest export`], ["ports", m.ports.join(", ") || "none"],
      ["families", m.ipFamilies.join(", ") || "none"], ["policies", m.policies], ["taking part", m.precedence.join(", ")],
      ["clusterset IP", m.ips?.length ? `${m.ips.join(", ")}, allocated by ${m.allocatedBy || "none"}` : "none"],
      ...Object.entries(m.leftOut || {}).sort().map(([c, why]) => ["left out", `${c}: ${why}`])] : [];
    return h("div", {},
      table("Exported by", ["Cluster", "Since", "Heartbeat", "Service", "Ready", "State"], exporters),
      table("Merged", ["Property", "Value"], merged),
      table("Conflicts", ["Reason", "Message", "What to do"], r.conflicts.map((c) => [c.reason, c.message, c.cure])),
      table("Endpoints by cluster and zone", ["Cluster", "Zone", "Ready", "Not ready", "Terminating"],
        r.endpoints.map((e) => [e.cluster, e.zone || "–", String(e.ready), String(e.notReady), String(e.terminating)])),
      table("Imported by", ["Cluster", "State", "Address", "Endpoints", "Data plane", "Programmed"], importers),
      table("DNS right now", ["Cluster", "Name", "Answer"], r.importers.map((x) => [x.cluster, x.dnsName, x.dns])),
      table("Last changes", ["Change", "Where", "What", "When"], r.timeline.map((s) => [s.change, s.where, s.what, clock(s.at)])));
  }
}

function table(title, head, rows) {
  if (!rows.length) return null;
  return h("section", {}, h("h3", {}, title), h("div", { class: "wide", tabindex: "0", "data-key": title, role: "region", "aria-label": title },
    h("table", {}, h("thead", {}, h("tr", {}, ...head.map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, ...rows.map((r) => h("tr", {}, h("th", { scope: "row" }, r[0]), ...r.slice(1).map((t) => h("td", {}, t))))))));
}

// The clusters: their state, and who reaches whom.

import { ago, clock, copyButton, h, plural, replaceKeepingFocus } from "./dom.js";
import { SHAPES, VERDICTS } from "./model.js";

const MAX_PATHS = 200;
const REACH = { reachable: ["●", 1], unreachable: ["✖", 3], "silent-but-serving": ["▲", 2], unknown: ["?", 4] };

export class Clusters {
  constructor(parent, app) {
    Object.assign(this, { parent, app });
  }

  find() {
    this.parent.querySelector("input")?.focus();
  }

  draw() {
    const { app: { model, route: { params } } } = this;
    const q = params.get("q") || "", from = params.get("cluster") || "";
    const clusters = model.clusters.filter((c) => !q || c.id.includes(q)).sort((a, b) => rank(b) - rank(a) || (a.id < b.id ? -1 : 1));
    const paths = model.paths.filter((p) => (!from || p.from === from || p.cluster === from) && (!q || p.from.includes(q) || p.cluster.includes(q)));
    replaceKeepingFocus(this.parent,
      h("h2", { class: "hidden" }, "Clusters"),
      h("div", { class: "filters", role: "search" },
        h("input", { type: "search", value: q, "data-key": "q", placeholder: "id of a cluster", "aria-label": "Find", input: (e) => this.app.set({ q: e.target.value }) })),
      h("section", { "aria-label": "Clusters" }, this.table(clusters)),
      h("section", {}, h("h3", {}, from ? `Who reaches ${from}, and whom it reaches` : "Who reaches whom"),
        from && h("p", {}, h("button", { type: "button", "data-key": "all", click: () => this.app.set({ cluster: "" }) }, "Show all clusters")),
        this.paths(paths)));
  }

  table(clusters) {
    if (!clusters.length) return h("p", { class: "empty" }, "No cluster.");
    const head = ["Cluster", "State", "Heartbeat", "Agent", "Kubernetes", "Data plane", "Exports", "Imports", "Endpoints ready", "Clusterset IPs used"];
    return h("div", { class: "wide", tabindex: "0", "data-key": "clusters", role: "region", "aria-label": "Table of clusters" }, h("table", {},
      h("thead", {}, h("tr", {}, ...head.map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, ...clusters.flatMap((c) => this.cluster(c)))));
  }

  // cluster returns the line of a cluster, and one with what is wrong.
  cluster(c) {
    const state = c.problem ? `unknown${c.lastSeen ? `, last seen ${clock(c.lastSeen)}` : ""}` : c.state;
    const unknown = c.state === "unknown";
    const line = h("tr", { "data-cluster": c.id },
      h("th", { scope: "row" }, h("span", { class: `v${c.verdict} shape`, "aria-hidden": "true" }, SHAPES[c.verdict]),
        h("span", { class: "hidden" }, `${VERDICTS[c.verdict]}: `), " ",
        h("button", { type: "button", class: "link", "data-key": `paths ${c.id}`, click: () => this.app.set({ cluster: c.id }) }, c.id)),
      h("td", {}, state, !c.read && h("span", { class: "detail" }, " (known from the broker)")),
      h("td", {}, unknown && !c.lastHeartbeat ? "–" : ago(c.lastHeartbeat)), h("td", {}, c.agentVersion || "–"), h("td", {}, c.kubernetes || "–"),
      h("td", {}, c.dataPlane || "–"), h("td", { class: "n" }, String(c.exports)), h("td", { class: "n" }, c.imports ?? "–"),
      h("td", { class: "n" }, `${c.readyEndpoints} of ${c.endpoints}`),
      h("td", { class: "n" }, c.pool ? `${c.pool.used} of ${c.pool.size.toLocaleString("en")}` : "–"));
    const wrong = this.wrong(c);
    return wrong.length ? [line, h("tr", { class: "wrong", "data-cluster": c.id }, h("td", { colspan: "10" }, ...wrong))] : [line];
  }

  wrong(c) {
    const out = [];
    if (c.problem) out.push(h("p", {}, c.problem));
    for (const check of c.checks || []) {
      const v = check.status === "fail" ? 3 : 2;
      out.push(h("details", { "data-key": `${c.id} ${check.code}` },
        h("summary", {}, h("span", { class: `v${v} shape`, "aria-hidden": "true" }, SHAPES[v]), h("span", { class: "hidden" }, `${VERDICTS[v]}: `),
          ` ${check.code}: ${check.detail}`),
        check.fix && h("p", { class: "cure" }, `do: ${check.fix} `, copyButton(check.fix))));
    }
    if (out.length) {
      const command = `seamark doctor${c.context ? ` --context ${c.context}` : ""}`;
      out.push(copyButton(command, `copy: ${command}`));
    }
    return out;
  }

  paths(paths) {
    if (!paths.length) return h("p", { class: "empty" }, "No agent said which clusters it reaches. Agents are asked where the page looks into their cluster.");
    const head = ["From", "To", "Family", "State", "Since", "Latency", "Beacons", "Why"];
    return h("div", { class: "wide", tabindex: "0", "data-key": "paths", role: "region", "aria-label": "Table of paths" }, h("table", {},
      h("thead", {}, h("tr", {}, ...head.map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, ...paths.slice(0, MAX_PATHS).map((p) => {
        const [sign, verdict] = REACH[p.state] || REACH.unknown;
        return h("tr", {}, h("th", { scope: "row" }, p.from), h("td", { class: "short" }, p.cluster), h("td", {}, p.family),
          h("td", { class: "short" }, h("span", { class: `v${verdict} shape`, "aria-hidden": "true" }, sign), ` ${p.state}`), h("td", { class: "short" }, ago(p.since)),
          h("td", { class: "n" }, p.latencySeconds ? `${(p.latencySeconds * 1000).toFixed(1)} ms` : "–"), h("td", { class: "n" }, `${p.answering} of ${p.beacons}`),
          h("td", {}, p.why));
      }))), paths.length > MAX_PATHS && h("p", {}, `${plural(paths.length - MAX_PATHS, "path")} more without trouble: choose a cluster.`));
  }
}

// rank puts trouble first: broken, warning, unknown, ok.
function rank(c) {
  return [0, 1, 3, 4, 2][c.verdict];
}

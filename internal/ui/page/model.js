// The state of the page as the server sends it: snapshots and differences, and what cells mean.

import { clock } from "./dom.js";

export const NONE = 0, OK = 1, WARN = 2, FAIL = 3, UNKNOWN = 4;
export const VERDICTS = ["no part", "ok", "warning", "broken", "unknown"];
// Each verdict has a shape of its own beside its colour.
export const SHAPES = ["·", "●", "▲", "✖", "?"];

const MASKS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

// cell returns the part of the cluster at an index in a service.
export function cell(row, i) {
  const n = row.c.charCodeAt(i) - 65;
  return { verdict: n >> 2, exports: (n & 2) !== 0, imports: (n & 1) !== 0 };
}

// targets returns the indexes of the clusters that a cluster sends to; null if the matrix does not say.
export function targets(row, i) {
  const exporters = row.x || [];
  const char = row.s[i];
  if (char === "~") return null;
  if (char === "*") return exporters;
  const mask = MASKS.indexOf(char);
  return exporters.filter((_, p) => p < 6 && mask & (1 << p));
}

export function split(name) {
  const at = name.indexOf("/");
  return { namespace: name.slice(0, at), name: name.slice(at + 1) };
}

// list names the first of some clusters.
export function list(names, max = 4) {
  if (names.length <= max) return names.join(", ");
  return `${names.slice(0, max).join(", ")} and ${names.length - max} more`;
}

// Model is one snapshot, indexed.
export class Model {
  constructor(snapshot) {
    this.reset(snapshot);
  }

  reset(snapshot) {
    this.seq = snapshot.seq;
    this.at = snapshot.at;
    this.clusterSet = snapshot.clusterSet;
    this.broker = snapshot.broker;
    this.clusters = snapshot.clusters || [];
    this.paths = snapshot.paths || [];
    this.rows = new Map((snapshot.rows || []).map((r) => [r.n, r]));
    this.columns = new Map(this.clusters.map((c, i) => [c.id, i]));
    this.sorted = null;
  }

  // apply applies a difference. It returns whether services came or went, or their verdicts changed.
  apply(delta) {
    if (delta.full) {
      this.reset(delta.full);
      return true;
    }
    let order = false;
    this.seq = delta.seq;
    this.at = delta.at;
    for (const row of delta.rows || []) {
      const old = this.rows.get(row.n);
      order = order || !old || old.v !== row.v;
      this.rows.set(row.n, row);
    }
    for (const name of delta.gone || []) order = this.rows.delete(name) || order;
    for (const c of delta.clusters || []) this.clusters[this.columns.get(c.id)] = c;
    if (delta.paths) this.paths = delta.paths;
    if (delta.broker) this.broker = delta.broker;
    if (order) this.sorted = null;
    return order;
  }

  // services returns all services by name.
  services() {
    this.sorted ||= [...this.rows.keys()].sort();
    return this.sorted;
  }

  // counts returns how many services have each verdict.
  counts() {
    const out = [0, 0, 0, 0, 0];
    for (const row of this.rows.values()) out[row.v]++;
    return out;
  }

  // cellText says what a cell shows.
  cellText(row, i) {
    const c = this.clusters[i];
    const { verdict, exports, imports } = cell(row, i);
    const parts = [];
    if (exports) parts.push("exports");
    if (imports) parts.push("imports");
    if (imports || exports) {
      const to = targets(row, i);
      if (to === null) parts.push(`sends to some of ${row.x.length} clusters`);
      else if (to.length) parts.push(`sends to ${list(to.map((t) => this.clusters[t].id))}`);
      else if (imports) parts.push("sends to no cluster");
    }
    const codes = (row.f || []).filter((f) => (f.clusters || []).includes(c.id)).map((f) => f.code);
    let text = `${c.id}: ${VERDICTS[verdict]}`;
    if (verdict === UNKNOWN) text += c.lastSeen ? `, last seen ${clock(c.lastSeen)}` : ", not seen yet";
    if (codes.length) text += ` (${codes.join(", ")})`;
    if (parts.length) text += `; ${parts.join(", ")}`;
    return text;
  }

  // rowText says what a row shows, in one sentence.
  rowText(row) {
    const parts = [];
    for (const f of row.f || []) {
      const where = f.clusters?.length ? ` in ${list(f.clusters)}` : "";
      parts.push(`${f.severity === "fail" ? "broken" : "warning"}: ${f.code}${where}`);
    }
    const unknown = [], importers = [];
    for (let i = 0; i < this.clusters.length; i++) {
      const { verdict, imports } = cell(row, i);
      if (verdict === UNKNOWN) unknown.push(this.clusters[i].id);
      if (imports) importers.push(this.clusters[i].id);
    }
    if (unknown.length) parts.push(`unknown in ${list(unknown)}`);
    const exporters = (row.x || []).map((i) => this.clusters[i].id);
    parts.push(exporters.length ? `exported by ${list(exporters)}` : "exported by no cluster");
    parts.push(importers.length ? `imported by ${list(importers, 3)}` : "imported by no cluster");
    return parts.join("; ");
  }
}

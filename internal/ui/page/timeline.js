// The timeline: what changed, newest first. A click shows the state at that moment.

import { clock, h, replaceKeepingFocus } from "./dom.js";

const PAGE = 200;
const SIGNS = { fail: "✖", warn: "▲", good: "●", note: "·" };
const SOURCES = { seen: "", event: "event", condition: "condition" };

export class Timeline {
  constructor(parent, button, app) {
    Object.assign(this, { parent, button, app, shown: PAGE, drawn: "" });
    button.addEventListener("click", () => this.toggle());
  }

  // toggle shows or hides it where there is no room for it beside the view.
  toggle() {
    const open = document.body.classList.toggle("timeline-open");
    this.button.setAttribute("aria-expanded", open);
  }

  draw() {
    const { app } = this;
    const only = app.route.view === "service" ? app.route.service : "";
    const entries = only ? app.entries.filter((e) => e.service === only || !e.service) : app.entries;
    const at = app.route.params.get("at") || "";
    const state = [entries.length, entries[entries.length - 1]?.at, only, at, this.shown, Boolean(app.now)].join(" ");
    if (state === this.drawn) return;
    this.drawn = state;
    const newest = entries.slice(-this.shown).sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : b.seq - a.seq));
    replaceKeepingFocus(this.parent,
      h("h2", {}, only ? "Timeline of this service" : "Timeline"),
      newest.length ? h("ol", { "data-key": "entries", tabindex: "0", "aria-label": "Changes, newest first" }, ...newest.map((e) => this.entry(e, at))) :
        h("p", { class: "empty" }, app.now ? "Nothing has changed since the page was opened." : "Reading …"),
      entries.length > this.shown && h("button", { type: "button", "data-key": "older", click: () => { this.shown += PAGE; this.draw(); } }, "Show older entries"));
  }

  entry(e, at) {
    const source = SOURCES[e.source];
    return h("li", { class: `s-${e.severity}` },
      h("button", { type: "button", "data-key": `${e.seq} ${e.text}`, "aria-pressed": at === String(e.seq) ? "true" : "false",
        click: () => this.app.set({ at: String(e.seq) }, false) },
      h("time", { datetime: e.at }, clock(e.at)), " ", h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[e.severity] || "·"),
      h("span", { class: "hidden" }, { fail: "broken: ", warn: "warning: ", good: "good: " }[e.severity] || ""), " ", e.text,
      source && h("span", { class: "source" }, ` ${source}`)));
  }
}

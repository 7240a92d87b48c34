// The page: where we are, what we know, and who draws it.

import { follow, get, Refused, takeToken } from "./api.js";
import { clock, h, replaceKeepingFocus, setText } from "./dom.js";
import { FAIL, Model, OK, SHAPES, UNKNOWN, WARN } from "./model.js";
import { Matrix } from "./matrix.js";
import { Clusters } from "./clusters.js";
import { Service } from "./service.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);

export const app = {
  model: null, // what is shown: live, or a moment
  now: null, // the newest state
  live: false, // whether the server follows a clusterset, and does not show a file
  entries: [],
  route: null,
  connection: { state: "connecting", since: new Date() },
  problem: "",
  view: null,
};

// The address says what is shown: /services, /clusters or /service/NAMESPACE/NAME, and the filters.
function readRoute() {
  const [, view, namespace, name] = location.pathname.split("/").map(decodeURIComponent);
  return { view: view || "services", service: view === "service" ? `${namespace}/${name}` : "", params: new URLSearchParams(location.search) };
}

// go shows another address. Parameters with an empty value are removed.
app.go = (path, params, replace) => {
  const query = new URLSearchParams(params);
  for (const [key, value] of [...query]) if (!value) query.delete(key);
  const url = path + (query.size ? `?${query}` : "");
  if (url !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", url);
  return routed();
};

// set changes parameters of the address.
app.set = (changes, replace = true) => app.go(location.pathname, { ...Object.fromEntries(app.route.params), ...changes }, replace);

app.openService = (name) => {
  const { namespace, name: short } = { namespace: name.slice(0, name.indexOf("/")), name: name.slice(name.indexOf("/") + 1) };
  app.go(`/service/${encodeURIComponent(namespace)}/${encodeURIComponent(short)}`, at());
};

// at returns the parameter that stays when the view changes: the moment.
function at() {
  return app.route.params.has("at") ? { at: app.route.params.get("at") } : {};
}

app.announce = (text) => setText($("announce"), text);

// READING is the problem of a cluster or broker whose first lists are not there yet.
const READING = "it was not read yet";

const views = { services: Matrix, clusters: Clusters, service: Service };
let momentShown = "";

async function routed() {
  const before = app.route;
  app.route = readRoute();
  const moment = app.route.params.get("at") || "";
  if (moment !== momentShown) {
    momentShown = moment;
    await showMoment(moment);
  }
  if (before?.view !== app.route.view || before?.service !== app.route.service || !app.view) {
    app.view?.close?.();
    app.view = new (views[app.route.view] || Matrix)($("view"), app);
    if (before) $("view").focus({ preventScroll: true });
  }
  draw(true);
}

// showMoment shows the state after the difference with a number, or the newest.
async function showMoment(moment) {
  if (!app.now) return;
  app.problem = "";
  app.model = app.now;
  if (!moment) return;
  try {
    const { snapshot } = await (await get(`/api/state?at=${encodeURIComponent(moment)}`)).json();
    app.model = new Model(snapshot);
  } catch (err) {
    app.problem = `That moment cannot be shown: ${err.message}.`;
  }
}

// draw draws everything that may have changed. order says that services came, went or changed their verdict.
let drawing = 0;
let orderChanged = false;
function draw(order) {
  orderChanged = orderChanged || order;
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    const changed = orderChanged;
    orderChanged = false;
    drawHeader();
    drawNotices();
    if (app.model) app.view?.draw(changed);
    timeline.draw();
    done();
  });
}
app.draw = draw;

// done says what is drawn, and when it was: tests and measurements read it.
function done() {
  const root = document.documentElement.dataset, seq = app.now ? String(app.now.seq) : "";
  if (app.model && root.ready !== "true") performance.mark("painted");
  if (root.seq !== seq) {
    performance.clearMarks("drawn");
    performance.mark("drawn");
  }
  root.ready = app.model ? "true" : "false";
  root.seq = seq;
}

function drawHeader() {
  const model = app.model;
  setText($("set"), model?.clusterSet || "Seamark");
  document.title = app.route.view === "service" ? `${app.route.service} · Seamark` : `${app.route.view} · Seamark`;
  const keep = new URLSearchParams(at());
  const query = keep.size ? `?${keep}` : "";
  const link = (view, text, path) => h("a", {
    href: path + query, "data-key": view, "aria-current": app.route.view === view ? "page" : null, click: (e) => {
      if (e.ctrlKey || e.metaKey || e.shiftKey) return;
      e.preventDefault();
      app.go(path, at());
    },
  }, text);
  const links = [link("services", "Services", "/services"), link("clusters", "Clusters", "/clusters")];
  if (app.route.view === "service") links.push(link("service", app.route.service, location.pathname));
  replaceKeepingFocus($("views"), ...links);
  const counts = model?.counts() || [0, 0, 0, 0, 0];
  const words = { [FAIL]: "broken", [WARN]: "warn", [UNKNOWN]: "unknown", [OK]: "ok" };
  replaceKeepingFocus($("counts"), ...[FAIL, WARN, UNKNOWN, OK].filter((v) => counts[v] || v === FAIL).map((v) =>
    h("span", { class: `v${v}` }, h("span", { class: "shape", "aria-hidden": "true" }, SHAPES[v]), ` ${counts[v].toLocaleString("en")} ${words[v]}`)));
  const { state, since } = app.connection;
  const text = { live: "live", file: "from a file", connecting: "connecting …", lost: `no connection since ${clock(since)}; trying again`,
    paused: "paused", refused: "no access" }[state];
  setText($("live"), text);
  $("live").dataset.state = state;
}

function drawNotices() {
  const model = app.model;
  const notices = [];
  const moment = app.route.params.get("at");
  if (app.problem) notices.push(h("p", { class: "notice v3" }, app.problem));
  if (moment && model) {
    notices.push(h("p", { class: "notice moment" }, `This is the state of ${clock(model.at)}. `,
      h("button", { type: "button", "data-key": "back", click: () => app.set({ at: "" }, false) }, app.live ? "Back to live" : "Back to the end")));
  }
  const reading = [...(model?.broker?.problem === READING ? ["the broker"] : []), ...(model?.clusters || []).filter((c) => c.problem === READING).map((c) => c.id)];
  if (reading.length) notices.push(h("p", { class: "notice" }, `Reading ${reading.slice(0, 5).join(", ")}${reading.length > 5 ? " …" : ""} for the first time.`));
  if (model?.broker?.problem && model.broker.problem !== READING) {
    const seen = model.broker.lastSeen ? `, last seen ${clock(model.broker.lastSeen)}` : "";
    notices.push(h("p", { class: "notice v4" }, `? The broker does not answer${seen}: what only it knows is unknown. Imported services keep working. `,
      h("span", { class: "detail" }, model.broker.problem)));
  }
  const away = (model?.clusters || []).filter((c) => c.problem && c.problem !== READING);
  if (away.length) {
    const seen = (c) => (c.lastSeen ? `${c.id} (last seen ${clock(c.lastSeen)})` : c.id);
    notices.push(h("p", { class: "notice v4" }, `? ${away.length === 1 ? "A cluster does" : `${away.length} clusters do`} not answer: ` +
      `${away.slice(0, 5).map(seen).join(", ")}${away.length > 5 ? " …" : ""}. ${away.length === 1 ? "Its" : "Their"} cells are unknown. `,
      h("span", { class: "detail" }, away[0].problem)));
  }
  const text = notices.map((n) => n.textContent).join("\n");
  if ($("notices").dataset.text !== text) {
    $("notices").dataset.text = text;
    replaceKeepingFocus($("notices"), ...notices);
  }
}

// load reads the whole state.
async function load() {
  const [state, entries] = await Promise.all([get("/api/state"), get("/api/timeline")]);
  const { snapshot, live } = await state.json();
  app.entries = (await entries.json()) || [];
  app.live = live;
  app.now = new Model(snapshot);
  await showMoment(momentShown);
  if (!momentShown) app.model = app.now;
}

function connectionIs(state) {
  if (app.connection.state !== state) app.connection = { state, since: new Date() };
  draw(false);
}

const handlers = {
  open: () => connectionIs("live"),
  delta: (delta) => {
    const order = app.now.apply(delta);
    for (const entry of delta.entries || []) app.entries.push(entry);
    if (app.entries.length > 20000) app.entries.splice(0, app.entries.length - 20000);
    draw(order && app.model === app.now);
    app.view?.changed?.(delta);
  },
  beat: ({ heartbeats }) => {
    for (const c of app.now.clusters) if (heartbeats[c.id]) c.lastHeartbeat = heartbeats[c.id];
    draw(false);
  },
  reset: () => { throw new Error("the state is too old"); },
};

// run follows the server for ever. A hidden tab closes its stream: browsers open only six connections to
// a server, and an eighth tab would wait without end.
async function run() {
  let wait = 250;
  let loaded = false;
  for (;;) {
    if (document.hidden && loaded) {
      connectionIs("paused");
      await new Promise((resume) => document.addEventListener("visibilitychange", resume, { once: true }));
      continue;
    }
    const abort = new AbortController();
    const hide = () => document.hidden && abort.abort();
    document.addEventListener("visibilitychange", hide);
    try {
      if (!loaded) await load();
      loaded = true;
      draw(true);
      if (!app.live) return connectionIs("file");
      wait = 250;
      await follow(app.now.seq, abort.signal, handlers);
    } catch (err) {
      if (err instanceof Refused) {
        connectionIs("refused");
        app.problem = "This tab has no valid token: open the address that seamark ui printed. A restarted seamark ui prints a new one.";
        if (!app.model) replaceKeepingFocus($("view"), h("p", { class: "empty" }, "Nothing can be shown without the token."));
        return draw(false);
      }
      if (err.message === "the state is too old") loaded = false;
    } finally {
      document.removeEventListener("visibilitychange", hide);
    }
    if (!abort.signal.aborted) {
      connectionIs("lost");
      await new Promise((done) => setTimeout(done, wait));
      wait = Math.min(wait * 2, 4000);
    }
  }
}

async function save() {
  try {
    const response = await get("/api/save");
    const name = /filename=([\w.-]+)/.exec(response.headers.get("Content-Disposition"))?.[1] || "seamark.ui.gz";
    const url = URL.createObjectURL(await response.blob());
    h("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    app.announce(`Saved ${name}. Open it with: seamark ui ${name}`);
    app.problem = "";
  } catch (err) {
    app.problem = `The page could not be saved: ${err.message}.`;
  }
  draw(false);
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const action = { s: () => app.go("/services", at()), c: () => app.go("/clusters", at()), t: () => timeline.toggle(), "/": () => app.view?.find?.() }[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
}

takeToken();
const timeline = new Timeline($("timeline"), $("show-timeline"), app);
$("save").addEventListener("click", save);
addEventListener("popstate", routed);
addEventListener("hashchange", () => { if (location.hash.startsWith("#token=")) { takeToken(); location.reload(); } });
addEventListener("keydown", keys);
addEventListener("resize", () => draw(true));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(true));
setInterval(() => draw(false), 5000); // ages
routed();
run();

"use strict";
// Status page. Text becomes text nodes only, never markup. Every control is a link or a form control, for keyboard use.
// Updates keep existing elements, and so the focus.

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const news = document.getElementById("news");
let overview = null;
let shown = null; // data of the view, to update times
let route = { view: "overview", parts: [], query: new URLSearchParams() };
let skew = 0; // seconds by which this clock is behind the operator's
let requests = 0;

// --- elements

function el(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [type, listener] of Object.entries(value)) made.addEventListener(type, listener);
    else if (key === "bar") Object.assign(made.style, value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== ""));
  return made;
}

function keyOf(node) {
  return node.nodeType === 1 ? node.getAttribute("data-key") || node.id : "";
}

function matches(old, fresh) {
  return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh);
}

// Updates `old` to match `fresh`, except for the focused control.
function update(old, fresh) {
  if (old.nodeType === 3) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== fresh.style.cssText) Object.assign(old.style, { left: fresh.style.left, width: fresh.style.width });
  if (old.matches("input, select") && old === document.activeElement) return;
  fill(old, [...fresh.childNodes]);
}

function fill(parent, children) {
  const byKey = new Map([...parent.childNodes].filter(keyOf).map((node) => [keyOf(node), node]));
  let next = parent.firstChild;
  for (const fresh of children) {
    let found = keyOf(fresh) ? byKey.get(keyOf(fresh)) : next;
    if (!found || !matches(found, fresh)) found = null;
    if (!found) parent.insertBefore(fresh, next);
    else {
      if (found !== next) parent.insertBefore(found, next);
      update(found, fresh);
      next = found.nextSibling;
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function draw(title, ...children) {
  const focused = document.activeElement;
  const fresh = [el("h1", { tabindex: "-1" }, title), ...children.flat(Infinity).filter(Boolean)];
  fill(main, fresh);
  if (focused && focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
  document.title = `${title} · Ansible operator`;
}

// --- texts

const now = () => Date.now() / 1000 + skew;
const seconds = (moment) => (typeof moment === "number" ? moment : Date.parse(moment) / 1000);

function span(amount) {
  if (amount === null || amount === undefined || Number.isNaN(amount)) return "";
  if (amount < 0.9995) return `${Math.round(Math.max(amount, 0) * 1000)} ms`;
  if (amount < 9.95) return `${amount.toFixed(1)} s`;
  if (amount < 90) return `${Math.round(amount)} s`;
  if (amount < 5400) return `${Math.round(amount / 60)} min`;
  if (amount < 48 * 3600) return `${Math.round(amount / 3600)} h`;
  return `${Math.round(amount / 86400)} days`;
}

function ago(moment) {
  if (!moment) return "";
  const at = seconds(moment);
  const exact = new Date(at * 1000).toISOString().replace(/\.\d+Z$/, "Z");
  const passed = now() - at;
  return el("time", { datetime: exact, title: exact }, passed < 5 ? "just now" : `${span(passed)} ago`);
}

const TONE = {
  failing: "bad", stalled: "bad", failed: "bad", died: "bad", "timed out": "bad", "not started": "bad", unreachable: "bad",
  "cut short": "bad", abandoned: "bad", ready: "good", succeeded: "good", ok: "good", running: "busy", "in progress": "busy",
  changed: "busy", "being deleted": "busy", waiting: "busy", rescued: "busy", ignored: "busy",
};
const tag = (word) => el("span", { class: `tag ${TONE[word] || ""}`.trim() }, word);
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const trigger = (reason, details) => (details && details.length ? `${reason}: ${details.join(", ")}` : reason);
const named = (one) => (one.namespace ? `${one.namespace}/${one.name}` : one.name);

function place(one) {
  return [one.kind_id, one.namespace || "-", one.name].map(encodeURIComponent).join("/");
}
const objectLink = (one, text) => el("a", { href: `#/object/${place(one)}` }, text || named(one));
const runLink = (run, text) => el("a", { href: `#/run/${place(run)}/${encodeURIComponent(run.ident)}` }, text);

// columns: [heading, cell(row), class]; the first is the row's header.
function table(caption, columns, rows, empty, attributes) {
  // ARIA roles are explicit, because narrow windows show tables as blocks, which removes the implicit roles.
  const head = el("tr", { role: "row" }, columns.map(([heading, , kind]) => el("th", { scope: "col", role: "columnheader", class: kind }, heading)));
  const body = rows.map((row, index) =>
    el("tr", { role: "row", "data-key": rowKey(row, index) }, columns.map(([heading, cell, kind], at) =>
      at === 0
        ? el("th", { scope: "row", role: "rowheader", class: kind }, cell(row))
        : el("td", { role: "cell", class: kind, "data-label": heading }, cell(row)))));
  if (!rows.length) return el("div", { class: "scroll" }, el("p", { class: "empty" }, empty));
  return el("div", { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", { role: "table", ...attributes }, el("caption", { class: "unseen" }, caption),
      el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, body)));
}
const rowKey = (row, index) => row.ident || row.id || (row.kind_id ? `${row.kind_id}/${named(row)}/${row.stage || ""}` : String(index));

const facts = (pairs) => el("dl", { class: "facts" },
  pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined)
    .flatMap(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));

// --- views

const RUN_COLUMNS = [
  ["Object", (run) => [objectLink(run), " ", el("span", { class: "soft" }, run.kind)]],
  ["Run", (run) => runLink(run, run.ended ? `${run.outcome || "ended"}, ${span(run.ended - run.began)}` : "running"), "tight"],
  ["Started", (run) => ago(run.began), "tight"],
  ["Trigger", (run) => trigger(run.reason, run.details)],
  ["Result", (run) => outcome(run), "message"],
  ["API calls", (run) => (run.calls === null ? "" : String(run.calls)), "number"],
];

function outcome(run) {
  if (!run.ended) return [tag("running"), " ", run.current];
  const failed = run.task ? [" task ", el("strong", {}, run.task), ": "] : run.message ? " " : "";
  const where = run.place ? [" ", el("span", { class: "place" }, run.place)] : "";
  return [tag(run.outcome), failed, run.message, where];
}

function drawOverview() {
  const { kinds, live, recent } = overview;
  const bad = recent.filter((run) => TONE[run.outcome] === "bad").slice(0, 5);
  draw("Overview",
    el("h2", {}, "Kinds"),
    table("Kinds", [
      ["Kind", (kind) => [el("a", { href: `#/objects?kind=${encodeURIComponent(kind.id)}` }, kind.kind), " ", el("span", { class: "soft" }, kind.api_version)]],
      ["Runs", (kind) => el("code", {}, kind.content)],
      ["Workers busy", (kind) => `${kind.active} of ${kind.workers}`, "number"],
      ["Waiting", (kind) => String(kind.waiting), "number"],
      ["Objects", (kind) => String(kind.objects), "number"],
      ["Status", (kind) => el("div", { class: "tags" }, Object.entries(kind.states).map(([state, count]) =>
        el("a", { class: `tag ${TONE[state] || ""}`, href: `#/objects?kind=${encodeURIComponent(kind.id)}&state=${encodeURIComponent(state)}` }, `${count} ${state}`)))],
      ["Watch", (kind) => (kind.problem ? [tag("failing"), " ", kind.problem] : "live")],
    ], kinds, "No watched kinds"),
    el("h2", {}, "Active"),
    table("Active", RUN_COLUMNS.filter(([heading]) => heading !== "API calls"), live, "No active runs"),
    bad.length ? [el("h2", {}, "Latest failures"), table("Latest failures", RUN_COLUMNS, bad, "")] : null,
  );
}

function drawRuns() {
  draw("Runs",
    el("h2", {}, "Active"),
    table("Active", RUN_COLUMNS.filter(([heading]) => heading !== "API calls"), overview.live, "No active runs"),
    el("h2", {}, "Finished"),
    table("Finished runs", RUN_COLUMNS, overview.recent, "No finished runs since the operator started"));
}

function go(changes) {
  const query = new URLSearchParams(route.query);
  for (const [name, value] of Object.entries(changes)) value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  history.replaceState(null, "", `#/${route.view}${text ? `?${text}` : ""}`);
  route.query = query;
  load();
}

function pager(data) {
  const turn = (to) => () => go({ page: to > 1 ? String(to) : "" });
  return el("nav", { class: "pager", "aria-label": "Pages" },
    el("button", { type: "button", id: "previous", disabled: data.page <= 1, on: { click: () => turn(shown.page - 1)() } }, "Previous"),
    el("span", {}, `Page ${data.page} of ${data.pages}`),
    el("button", { type: "button", id: "next", disabled: data.page >= data.pages, on: { click: () => turn(shown.page + 1)() } }, "Next"));
}

function choice(label, name, options) {
  const chosen = route.query.get(name) || "";
  return el("label", {}, label, el("select", { id: name, on: { change: (event) => go({ [name]: event.target.value, page: "" }) } },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text))));
}
const kindChoice = () => choice("Kind", "kind", [["", "all"], ...overview.kinds.map((kind) => [kind.id, `${kind.kind} (${kind.api_version})`])]);

let typing = 0;
function searched(event) {
  clearTimeout(typing);
  const value = event.target.value;
  typing = setTimeout(() => go({ search: value, page: "" }), 200);
}

function drawObjects(data) {
  const states = ["failing", "stalled", "in progress", "being deleted", "unknown", "paused", "ready"];
  draw("Objects",
    el("form", { role: "search", on: { submit: (event) => event.preventDefault() } },
      el("label", {}, "Namespace or name", el("input", { type: "search", id: "search", autocomplete: "off", value: route.query.get("search") || "", on: { input: searched } })),
      choice("State", "state", [["", "all"], ...states.map((state) => [state, state])]),
      kindChoice()),
    el("p", { class: "soft", role: "status", id: "found" }, plural(data.total, "object")),
    table("Objects", [
      ["Object", (one) => [objectLink(one), " ", el("span", { class: "soft" }, one.kind)]],
      ["State", (one) => [tag(one.state), one.running ? [" ", tag("running")] : ""], "tight"],
      ["Since", (one) => ago(one.since), "tight"],
      ["Consecutive failures", (one) => (one.failed_runs ? String(one.failed_runs) : ""), "number"],
      ["Message", (one) => one.message, "message"],
    ], data.objects, "No matching objects"),
    pager(data));
}

function drawQueue(data) {
  draw("Queue",
    el("form", { on: { submit: (event) => event.preventDefault() } }, kindChoice()),
    el("p", { class: "soft", role: "status", id: "found" }, plural(data.total, "entry").replace("entrys", "entries")),
    table("Queue", [
      ["Object", (one) => [objectLink(one), " ", el("span", { class: "soft" }, one.kind)]],
      ["Stage", (one) => tag(one.stage), "tight"],
      ["Trigger", (one) => trigger(one.reason, one.details)],
      ["Wait", (one) => waits(one), "tight"],
      ["Consecutive failures", (one) => (one.failed_runs ? String(one.failed_runs) : ""), "number"],
    ], data.queue, "The queue is empty"),
    pager(data));
}
function waits(one) {
  const passed = one.stage === "delayed" ? one.seconds - (now() - shown.now) : one.seconds + (now() - shown.now);
  return one.stage === "delayed" ? `due in ${span(passed)}` : `for ${span(passed)}`;
}

function drawObject(data) {
  const standing = data.standing;
  const failed = data.runs.find((run) => run.task);
  draw(`${data.kind} ${named(data)}`,
    el("p", { class: "crumbs" }, el("a", { href: `#/objects?kind=${encodeURIComponent(data.kind_id)}` }, `All objects of kind ${data.kind}`)),
    facts([
      ["State", data.gone ? "gone" : [tag(data.state), data.since ? [" since ", ago(data.since)] : ""]],
      ["Consecutive failures", data.failed_runs ? [`${data.failed_runs}, the first `, ago(data.failing_since)] : ""],
      ["Failed task", failed && ["failing", "stalled"].includes(data.state) ? [failed.task, " ", el("span", { class: "place" }, failed.place)] : ""],
      ["Queue", standing ? [tag(standing.stage), ` ${trigger(standing.reason, standing.details)}, `, waits({ ...standing })] : "not queued"],
      ["Runs", el("code", {}, data.content)],
      ["Generation", data.generation ? `${data.generation}${data.observed ? `, observed ${data.observed}` : ""}` : ""],
      ["Created", data.created ? ago(data.created) : ""],
    ]),
    el("h2", {}, "Conditions"),
    table("Conditions", [
      ["Type", (one) => one.type],
      ["Status", (one) => one.status],
      ["Reason", (one) => one.reason],
      ["Since", (one) => ago(one.since), "tight"],
      ["Message", (one) => one.message, "message"],
    ], (data.conditions || []).map((each) => ({ ...each, id: each.type })), "No conditions"),
    el("h2", {}, "Runs"),
    table("Runs", [
      ["Run", (run) => runLink(run, run.ended ? `${run.outcome || "ended"}, ${span(run.ended - run.began)}` : "running"), "tight"],
      ...RUN_COLUMNS.slice(2),
    ], data.runs, "No runs"));
}

function drawRun(data) {
  const end = data.ended || now();
  const whole = Math.max(end - data.began, 0.001);
  const part = (moment) => `${Math.min(Math.max((100 * (moment - data.began)) / whole, 0), 100)}%`;
  draw(`Run of ${data.kind} ${named(data)}`,
    el("p", { class: "crumbs" }, objectLink(data), ` · ${data.ident}`),
    facts([
      ["Result", data.ended ? tag(data.outcome) : tag("running")],
      ["Failed task", data.task ? [data.task, " ", el("span", { class: "place" }, data.place)] : ""],
      ["Message", data.message],
      ["Trigger", trigger(data.reason, data.details)],
      ["Queue time", data.reason ? span(data.waited) : ""],
      ["Started", ago(data.began)],
      ["Duration", data.ended ? span(end - data.began) : [span(end - data.began), " so far"].join("")],
      ["API calls", data.calls === null ? "" : `${data.calls} in ${span(data.call_seconds)}, ${data.cache_hits} reads from the cache`],
      ["Tasks by execution", Object.entries(data.ways).map(([way, count]) => `${count} ${way.replaceAll("_", " ")}`).join(", ")],
    ]),
    el("h2", {}, data.task_count > data.tasks.length ? `Tasks: the latest ${data.tasks.length} of ${data.task_count}` : plural(data.task_count, "task")),
    table("Tasks", [
      ["Task", (task) => [task.name || task.action, task.message ? el("span", { class: "message" }, task.message) : ""]],
      ["Location", (task) => el("span", { class: "place", title: task.path }, shortened(task.path))],
      ["State", (task) => tag(task.state), "tight"],
      ["Duration", (task) => span((task.ended || now()) - task.began), "number"],
      ["Timeline", (task) => el("div", { class: "lane", role: "presentation" }, el("div", {
        class: `bar ${task.state.split(" ")[0]}`,
        bar: { left: part(task.began), width: `${Math.max(((task.ended || now()) - task.began) / whole * 100, 0)}%` } })), "lane-cell"],
    ], data.tasks.map((task, index) => ({ ...task, id: String(index) })), "No tasks yet", { class: "timeline" }));
}
const shortened = (path) => path.replace(/^.*\/((?:roles|playbooks|collections|project)\/)/, "$1");

function drawMissing(problem) {
  draw("Not found", el("p", {}, problem), el("p", {}, el("a", { href: "#/" }, "Overview")));
}

// --- navigation

const VIEWS = { overview: drawOverview, runs: drawRuns, objects: drawObjects, queue: drawQueue, object: drawObject, run: drawRun };

function address() {
  const [kind, namespace, name, ident] = route.parts;
  const one = { kind, namespace: namespace === "-" ? "" : namespace, name };
  if (route.view === "object") return `api/object?${new URLSearchParams(one)}`;
  if (route.view === "run") return `api/run?${new URLSearchParams({ ...one, ident })}`;
  return `api/${route.view}?${route.query}`;
}

function redraw() {
  if (!overview) return;
  if (route.view === "overview" || route.view === "runs") VIEWS[route.view]();
  else if (shown && shown.error) drawMissing(shown.error);
  else if (shown) VIEWS[route.view](shown);
}

async function load() {
  if (route.view === "overview" || route.view === "runs") {
    redraw();
    return;
  }
  const mine = ++requests;
  try {
    const answer = await fetch(address());
    const data = await answer.json();
    if (mine === requests) {
      shown = data;
      redraw();
    }
  } catch {
    // The stream reports the lost connection, and its next event loads the view again.
  }
}

function follow() {
  const text = location.hash.replace(/^#\/?/, "");
  if (location.hash === "#main") {
    main.focus();
    return;
  }
  const [path, query] = text.split("?");
  const [view, ...parts] = path.split("/").map(decodeURIComponent);
  route = { view: view in VIEWS ? view : "overview", parts, query: new URLSearchParams(query || "") };
  shown = null;
  const section = { object: "objects", run: "runs" }[route.view] || route.view;
  for (const link of document.querySelectorAll("nav a[data-view]")) {
    link.dataset.view === section ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  load().then(() => {
    const heading = main.querySelector("h1");
    if (heading && started) heading.focus({ preventScroll: true });
    started = true;
    scrollTo(0, 0);
  });
}
let started = false;

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
addEventListener("hashchange", follow);

// --- live updates

let announced = "";
function announce() {
  const all = overview.kinds.reduce((sum, kind) => {
    for (const [state, count] of Object.entries(kind.states)) sum[state] = (sum[state] || 0) + count;
    return sum;
  }, {});
  const bad = (all.failing || 0) + (all.stalled || 0);
  const sentence = `${plural(bad, "object")} failing`;
  if (announced && announced !== sentence) news.textContent = sentence;
  announced = sentence;
}

function connect() {
  const stream = new EventSource("events");
  stream.addEventListener("overview", (event) => {
    overview = JSON.parse(event.data);
    skew = overview.now - Date.now() / 1000;
    const where = overview.namespaces.length ? overview.namespaces.join(", ") : "all namespaces";
    document.getElementById("about").textContent = `${overview.version} · ${where}`;
    connection.textContent = "live";
    connection.className = "live";
    announce();
    load();
  });
  stream.addEventListener("error", () => {
    connection.textContent = "no connection to the operator";
    connection.className = "lost";
    // The browser reconnects after a lost connection, but not after an error response.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
}

follow();
connect();
setInterval(redraw, 5000);

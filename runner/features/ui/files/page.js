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
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== "")
    .map((each) => (typeof each === "string" ? visible(each) : each)));
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
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== fresh.style.cssText) Object.assign(old.style, { left: fresh.style.left, width: fresh.style.width });
  if (old.matches("input, select") && old === document.activeElement) return;
  fill(old, [...fresh.childNodes]);
  if (old.matches("input, select") && old.value !== fresh.value) old.value = fresh.value;
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
  document.title = `${title} · ${overview.operator} · Ansible operator`;
}

// --- texts

// Control characters as text, as in the log: some would reverse or hide the text around them.
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;
function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(CONTROL, (found) => {
    const code = found.charCodeAt(0);
    return code > 0xff ? `\\u${code.toString(16).padStart(4, "0")}` : `\\x${code.toString(16).padStart(2, "0")}`;
  });
}
// Text of users between the operator's own: text that is written from right to left does not reorder its neighbours.
const isolated = (text) => (text ? el("bdi", {}, text) : "");

const now = () => Date.now() / 1000 + skew;
const seconds = (moment) => (typeof moment === "number" ? moment : Date.parse(moment) / 1000);

// A number and its unit, with a space between them that does not break.
function span(amount) {
  if (amount === null || amount === undefined || Number.isNaN(amount)) return "";
  if (amount < 0.9995) return `${Math.round(Math.max(amount, 0) * 1000)}\u00a0ms`;
  if (amount < 9.95) return `${amount.toFixed(1)}\u00a0s`;
  if (amount < 90) return `${Math.round(amount)}\u00a0s`;
  if (amount < 5400) return `${Math.round(amount / 60)}\u00a0min`;
  if (amount < 48 * 3600) return `${Math.round(amount / 3600)}\u00a0h`;
  return `${Math.round(amount / 86400)}\u00a0days`;
}

// Local time, with the date unless it is today, and the time that has passed.
function ago(moment) {
  if (!moment) return "";
  const at = new Date(seconds(moment) * 1000);
  const exact = at.toISOString().replace(/\.\d+Z$/, "Z");
  const two = (number) => String(number).padStart(2, "0");
  const clock = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  const day = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  const today = at.toDateString() === new Date(now() * 1000).toDateString();
  const passed = now() - seconds(moment);
  return el("time", { datetime: exact, title: exact },
    `${today ? "" : `${day} `}${clock}, ${passed < 5 ? "just now" : `${span(passed)} ago`}`);
}

const STAGE = { delayed: "scheduled" };
const TONE = {
  failing: "bad", stalled: "bad", failed: "bad", died: "bad", "timed out": "bad", "not started": "bad", unreachable: "bad",
  "cut short": "bad", abandoned: "bad", ready: "good", succeeded: "good", ok: "good", running: "busy", "in progress": "busy",
  changed: "busy", created: "busy", deleted: "busy", resolved: "good", "being deleted": "busy", waiting: "busy", "waiting for its CRD": "bad", rescued: "busy", ignored: "busy",
};
const tag = (word) => el("span", { class: `tag ${TONE[word] || ""}`.trim() }, word);
const plural = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
const trigger = (reason, details) => (details && details.length ? [`${reason}: `, isolated(details.join(", "))] : reason);
const named = (one) => (one.namespace ? `${one.namespace}/${one.name}` : one.name);

function place(one) {
  return [one.kind_id, one.namespace || "-", one.name].map(encodeURIComponent).join("/");
}
const objectLink = (one, text) => el("a", { href: `#/object/${place(one)}` }, text || named(one));
const kindLink = (one, text) => el("a", { href: `#/objects?kind=${encodeURIComponent(one.kind_id)}` }, text);
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
  ["Started", (run) => runLink(run, ago(run.began)), "time"],
  ["Duration", (run) => (run.ended ? span(run.ended - run.began) : ""), "number"],
  ["Trigger", (run) => trigger(run.reason, run.details)],
  ["Result", (run) => outcome(run), "message"],
  ["API calls", (run) => (run.calls === null ? "" : String(run.calls)), "number"],
];

// A message, of which two lines are shown until it is opened.
const SHORT = 140, BRIEF = 600;
function brief(text) {
  if (!text || (text.length <= SHORT && text.split("\n").length <= 2)) return isolated(text);
  return el("details", { class: "brief" }, el("summary", {}, isolated(text.slice(0, BRIEF))), isolated(text.slice(BRIEF)));
}

function outcome(run) {
  if (!run.ended) return [tag("running"), " ", isolated(run.current)];
  const failed = run.task ? [" task ", el("strong", {}, run.task), ": "] : run.message ? " " : "";
  const where = run.place ? [" ", el("span", { class: "place" }, run.place)] : "";
  const times = run.times > 1 ? [" ", el("span", { class: "soft" }, `${run.times} times`)] : "";
  return [tag(run.outcome), run.resolved ? [" ", tag("resolved")] : "", times, failed, brief(run.message), where];
}

// Failures of one cause in a row are one row: the latest of them, with their number.
function counted(runs) {
  const cause = (run) => (run.task || run.message ? [run.outcome, run.task, run.place, run.message].join("\n") : "");
  const rows = [];
  for (const run of runs) {
    const last = rows.at(-1);
    if (last && cause(run) && cause(run) === cause(last)) last.times += 1;
    else rows.push({ ...run, times: 1 });
  }
  return rows;
}

// The next run of an object; `at` is the time of the data.
function nextRun(next, at) {
  if (!next) return "";
  if (next.stage === "waiting") return [tag("waiting"), " ", trigger(next.reason, next.details)];
  return `${next.reason} in ${span(next.seconds - (now() - at))}`;
}

function more(group) {
  const hidden = (group.failing_objects || group.resolved_objects) - group.objects.length;
  return hidden > 0 ? ` and ${hidden} more` : "";
}
const FAILURE_COLUMNS = [
  ["Cause", (group) => [
    group.task ? [el("strong", {}, group.task), ": "] : "", brief(group.message), group.place ? [" ", el("span", { class: "place" }, group.place)] : ""], "message"],
  ["State", (group) => (group.resolved ? tag("resolved") : tag(group.outcome)), "tight"],
  ["Objects", (group) => [
    group.objects.map((one, index) => [index ? ", " : "", objectLink(one)]),
    more(group), " ", el("span", { class: "soft" }, group.kind),
    group.failing_objects && group.resolved_objects ? `; ${group.resolved_objects} resolved` : ""]],
  ["Failed runs", (group) => runLink(group, String(group.runs)), "number"],
  ["Last", (group) => ago(group.ended), "time"],
  ["Next run", (group) => (group.resolved ? "" : nextRun(group.next, overview.now)), "next"],
];

function copyable(command) {
  return [el("code", {}, command), el("button", { type: "button", class: "copy", on: { click: copy } }, "Copy")];
}
async function copy(event) {
  const button = event.currentTarget;
  try {
    await navigator.clipboard.writeText(button.previousElementSibling.textContent);
    news.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.previousElementSibling); // no permission: the user copies the selection
  }
}
const folded = (summary, ...children) => el("details", {}, el("summary", {}, summary), ...children);
const block = (label, text) => el("pre", { tabindex: "0", role: "region", "aria-label": label }, text);

// Sections of features: a node is text, a list of nodes, or {as, of}, an element and its content.
const ELEMENTS = {
  tag, time: ago, object: objectLink, isolated,
  soft: (of) => el("span", { class: "soft" }, content(of)),
  note: (of) => el("p", { class: "soft" }, content(of)),
  command: ({ text, line }) => el("p", { class: "command" }, text, copyable(line)),
  line: (of) => el("div", { class: "field" }, content(of)),
  code: (of) => el("code", {}, of),
  removed: (of) => el("del", {}, of),
  added: (of) => el("ins", {}, of),
  folded: ([summary, of]) => folded(summary, content(of)),
  table: ({ caption, columns, rows, empty }) => table(
    caption, columns.map(([heading, kind], at) => [heading, (row) => content(row[at]), kind || undefined]), rows, empty),
};
const content = (node) => (typeof node === "string" ? node : Array.isArray(node) ? node.map(content) : ELEMENTS[node.as](node.of));
const sections = (of) => of.map(({ title, nodes }) => [el("h2", {}, title), nodes.map(content)]);

function drawOverview() {
  const { kinds, live, failures } = overview;
  draw("Overview",
    el("h2", {}, "Kinds"),
    table("Kinds", [
      ["Kind", (kind) => [el("a", { href: `#/objects?kind=${encodeURIComponent(kind.id)}` }, kind.kind), " ", el("span", { class: "soft" }, kind.api_version)]],
      ["Role or playbook", (kind) => el("code", {}, kind.content)],
      ["Workers busy", (kind) => `${kind.active} of ${kind.workers}`, "number"],
      ["Waiting", (kind) => String(kind.waiting), "number"],
      ["Objects", (kind) => String(kind.objects), "number"],
      ["Status", (kind) => el("div", { class: "tags" }, Object.entries(kind.states).map(([state, count]) =>
        el("a", { class: `tag ${TONE[state] || ""}`, href: `#/objects?kind=${encodeURIComponent(kind.id)}&state=${encodeURIComponent(state)}` }, `${count} ${state}`)))],
      ["Watch", (kind) => (kind.waits ? tag("waiting for its CRD") : kind.problem ? [tag("failing"), " ", brief(kind.problem)] : "live")],
    ], kinds, "No watched kinds"),
    sections(overview.sections),
    el("h2", {}, "Active"),
    table("Active", RUN_COLUMNS.filter(([heading]) => heading !== "API calls"), live, "No active runs"),
    failures.length ? [el("h2", {}, "Latest failures"), table("Latest failures", FAILURE_COLUMNS, failures, "")] : null,
  );
}

function drawRuns(data) {
  const results = ["unresolved", "failed", "succeeded", "timed out", "canceled", "died", "not started"];
  draw("Runs",
    el("h2", {}, "Active"),
    table("Active", RUN_COLUMNS.filter(([heading]) => heading !== "API calls"), overview.live, "No active runs"),
    el("h2", {}, "Finished"),
    el("form", { role: "search", on: { submit: (event) => event.preventDefault() } },
      searchField(),
      choice("Result", "result", [["", "all"], ...results.map((result) => [result, result])]),
      kindChoice()),
    el("p", { class: "soft", role: "status", id: "found" }, plural(data.total, "run")),
    table("Finished runs", RUN_COLUMNS, data.runs, overview.finished ? "No matching runs" : "No finished runs since the operator started"),
    pager(data));
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

const searchField = () => el("label", {}, "Namespace or name", el("input", {
  type: "search", id: "search", autocomplete: "off", value: route.query.get("search") || "", on: { input: searched } }));

function drawObjects(data) {
  const states = ["failing", "stalled", "in progress", "being deleted", "unknown", "paused", "ready"];
  draw("Objects",
    el("form", { role: "search", on: { submit: (event) => event.preventDefault() } },
      searchField(),
      choice("State", "state", [["", "all"], ...states.map((state) => [state, state])]),
      kindChoice()),
    el("p", { class: "soft", role: "status", id: "found" }, plural(data.total, "object")),
    table("Objects", [
      ["Object", (one) => [objectLink(one), " ", el("span", { class: "soft" }, one.kind)]],
      ["State", (one) => [tag(one.state), one.running ? [" ", tag("running")] : ""], "tight"],
      ["Since", (one) => ago(one.since), "time"],
      ["Consecutive failures", (one) => (one.failed_runs ? String(one.failed_runs) : ""), "number"],
      ["Next run", (one) => nextRun(one.next, data.now), "next"],
      ["Message", (one) => brief(one.message), "message"],
    ], data.objects, "No matching objects"),
    pager(data));
}

function drawQueue(data) {
  draw("Queue",
    el("form", { role: "search", on: { submit: (event) => event.preventDefault() } }, searchField(), kindChoice()),
    el("p", { class: "soft", role: "status", id: "found" }, plural(data.total, "entry").replace("entrys", "entries")),
    table("Queue", [
      ["Object", (one) => [objectLink(one), " ", el("span", { class: "soft" }, one.kind)]],
      ["Stage", (one) => tag(STAGE[one.stage] || one.stage), "tight"],
      ["Trigger", (one) => trigger(one.reason, one.details)],
      ["Wait", (one) => waits(one), "tight"],
      ["Consecutive failures", (one) => (one.failed_runs ? String(one.failed_runs) : ""), "number"],
    ], data.queue, route.query.size ? "No matching entries" : "The queue is empty"),
    pager(data));
}
function waits(one) {
  const passed = one.stage === "delayed" ? one.seconds - (now() - shown.now) : one.seconds + (now() - shown.now);
  return one.stage === "delayed" ? `due in ${span(passed)}` : `for ${span(passed)}`;
}

// A value of JSON as lines of YAML.
function yaml(value, indent = "") {
  const inner = `${indent}  `;
  const below = (of) => (of && typeof of === "object" && Object.keys(of).length ? `\n${yaml(of, inner)}` : ` ${yaml(of)}`);
  if (Array.isArray(value) && value.length) return value.map((item) => `${indent}- ${yaml(item, inner).trimStart()}`).join("\n");
  if (value && typeof value === "object" && Object.keys(value).length) {
    return Object.entries(value).map(([key, item]) => `${indent}${key}:${below(item)}`).join("\n");
  }
  if (typeof value !== "string") return JSON.stringify(value);
  if (value.includes("\n")) return `|\n${value.trimEnd().split("\n").map((line) => inner + line).join("\n")}`;
  return /^[\w./*][\w ./@*-]*$/.test(value) && !/^([\d.]+|true|false|null|yes|no)$/i.test(value) ? value : JSON.stringify(value);
}
function fieldsOf(data) {
  if (typeof data.fields === "string") return [el("h2", {}, "Spec and status"), el("p", { class: "soft" }, data.fields)];
  return Object.entries(data.fields).map(([name, of]) => [
    el("h2", {}, name === "spec" ? "Spec" : "Status"), block(name === "spec" ? "Spec" : "Status", yaml(of))]);
}

function drawObject(data) {
  const standing = data.standing && data.standing.stage !== "delayed" ? data.standing : null;
  const isBad = ["failing", "stalled"].includes(data.state);
  const failed = isBad && data.runs.find((run) => run.task);
  const conditions = (data.conditions || []).map((each) => ({ ...each, id: each.type }));
  const failure = conditions.find((one) => one.type === "Failure" && one.status === "True");
  const repeats = (one) => failure && one !== failure && one.message && failure.message.startsWith(one.message.slice(0, 60));
  draw(`${data.kind} ${named(data)}`,
    el("p", { class: "crumbs" }, kindLink(data, `All objects of kind ${data.kind}`)),
    facts([
      ["State", data.gone ? "gone" : [tag(data.state), data.since ? [" since ", ago(data.since)] : ""]],
      ["Consecutive failures", data.failed_runs ? [`${data.failed_runs}, the first `, ago(data.failing_since)] : ""],
      ["Cause", isBad ? isolated((failed && failed.message) || data.message) : ""],
      ["Failed task", failed ? [isolated(failed.task), " ", el("span", { class: "place" }, failed.place)] : ""],
      ["Queue", standing ? [tag(standing.stage), " ", trigger(standing.reason, standing.details), ", ", waits(standing)] : ""],
      ["Next run", nextRun(data.next, data.now)],
      ["Role or playbook", el("code", {}, data.content)],
      ["Output of the last run", copyable(data.logs)],
      ["Generation", data.generation ? `${data.generation}${data.observed ? `, observed ${data.observed}` : ""}` : ""],
      ["Created", data.created ? ago(data.created) : ""],
    ]),
    el("h2", {}, "Conditions"),
    table("Conditions", [
      ["Type", (one) => one.type],
      ["Status", (one) => one.status],
      ["Reason", (one) => one.reason],
      ["Since", (one) => ago(one.since), "time"],
      ["Message", (one) => (repeats(one) ? el("span", { class: "soft" }, "as Failure") : brief(one.message)), "message"],
    ], conditions, "No conditions"),
    sections(data.sections),
    el("h2", {}, "Runs"),
    table("Runs", RUN_COLUMNS.slice(1), counted(data.runs), "No runs"),
    data.dependents.length ? [el("h2", {}, "Dependents"), table("Dependents", [
      ["Object", (one) => named(one)],
      ["Kind", (one) => `${one.kind} (${one.api_version})`],
      ["Health", (one) => tag(one.state), "tight"],
      ["Message", (one) => brief(one.message), "message"],
    ], data.dependents, "")] : "",
    fieldsOf(data));
}

function drawRun(data) {
  const end = data.ended || now();
  const whole = Math.max(end - data.began, 0.001);
  const details = detailsOf(data);
  const tasks = data.tasks.map((task, index) => {
    const number = data.task_count - data.tasks.length + index + 1;
    return { ...task, number, id: String(number) };
  });
  const wasOpen = document.getElementById("opened");
  const part = (moment) => `${Math.min(Math.max((100 * (moment - data.began)) / whole, 0), 100)}%`;
  draw(`Run of ${data.kind} ${named(data)}`,
    el("p", { class: "crumbs" }, objectLink(data), ` · ${data.ident}`),
    facts([
      ["Result", data.ended ? tag(data.outcome) : tag("running")],
      ["Failed task", data.task ? [isolated(data.task), " ", el("span", { class: "place" }, data.place)] : ""],
      ["Message", brief(data.message)],
      ["Trigger", trigger(data.reason, data.details)],
      ["Pod", data.pod || data.pod_commands.length ? [data.pod, data.pod_commands.map((command) => el("div", { class: "command" }, copyable(command)))] : ""],
      ["Queue time", data.reason ? span(data.waited) : ""],
      ["Started", ago(data.began)],
      ["Duration", data.ended ? span(end - data.began) : [span(end - data.began), " so far"].join("")],
      ["API calls", data.calls === null ? "" : `${data.calls} in ${span(data.call_seconds)}, ${data.cache_hits} reads from the cache`],
    ]),
    el("h2", {}, data.task_count > data.tasks.length ? `Tasks: the latest ${data.tasks.length} of ${data.task_count}` : plural(data.task_count, "task")),
    table("Tasks", [
      ["Task", (task) => [task.name || task.action, task.message ? el("div", { class: "message" }, brief(task.message)) : "", items(task), diffs(task, details)]],
      ["Location", (task) => el("span", { class: "place", title: task.path }, shortened(task.path)), "location"],
      ["State", (task) => tag(task.state), "tight"],
      ["Duration", (task) => span((task.ended || now()) - task.began), "number"],
      ["Timeline", (task) => el("div", { class: "lane", role: "presentation" }, el("div", {
        class: `bar ${task.state.split(" ")[0]}`,
        bar: { left: part(task.began), width: `${Math.max(((task.ended || now()) - task.began) / whole * 100, 0)}%` } })), "lane-cell"],
    ], tasks, "No tasks yet", { class: "timeline" }),
    noDiffs(tasks, details),
    data.ended ? [el("h2", {}, "Objects"), objectsOf(tasks, details), el("h2", {}, "Output"), outputOf(data, details)] : null);
  if (!wasOpen) scrollOutput();
}

function items(task) {
  if (!task.item_count) return "";
  const counts = {};
  for (const { state } of task.items) counts[state] = (counts[state] || 0) + 1;
  const more = task.item_count - task.items.length;
  const summary = `${plural(task.item_count, "item")}: ${Object.entries(counts).map(([state, count]) => `${count} ${state}`).join(", ")}${more ? `, ${more} not shown` : ""}`;
  return folded(summary, el("ul", {}, task.items.map((item) =>
    el("li", {}, tag(item.state), " ", isolated(item.label), item.message ? el("span", { class: "message" }, item.message) : ""))));
}
function diffs(task, details) {
  return details.diffs.filter((each) => each.task === task.number).map((each) => folded("Diff", block("Diff", each.text)));
}
function noDiffs(tasks, details) {
  if (details.loading || details.error || details.diffs.length || !tasks.some((task) => task.state === "changed")) return null;
  return el("p", { class: "soft" }, "No task reported a diff. To record diffs, start the operator with ", el("code", {}, "ANSIBLE_DIFF_ALWAYS=1"), " in its environment.");
}
function objectsOf(tasks, details) {
  const names = new Map(tasks.map((task) => [task.number, task.name || task.action]));
  return table("Objects", [
    ["Object", (one) => [named(one), " ", el("span", { class: "soft" }, `${one.kind} (${one.api_version})`)]],
    ["Change", (one) => tag(one.change), "tight"],
    ["Task", (one) => names.get(one.task) || ""],
    ["Content", (one) => folded("YAML", block(`YAML of ${named(one)}`, one.yaml)), "wide"],
  ], details.objects.map((each, index) => ({ ...each, id: String(index) })),
  details.loading ? "Loading" : details.error || "No task returned an object");
}
function outputOf(data, details) {
  const shownOutput = details.output === null || details.output === undefined
    ? el("p", { class: "soft" }, details.loading ? "Loading" : details.error || "The run has no output")
    : [details.output_is_cut ? el("p", { class: "soft" }, "The beginning is not shown.") : "", block("Output", opened(details.output))];
  return [shownOutput, el("p", { class: "command" }, "Output of the object's last run: ", copyable(data.logs))];
}
// The output, which opens at the task that failed last, or at the first play.
function opened(output) {
  const lines = output.split("\n");
  const bad = Math.max(lines.findLastIndex((line) => /^(fatal|failed): /.test(line)), lines.findIndex((line) => /^(ERROR!|\[ERROR\])/.test(line)));
  const task = lines.slice(0, Math.max(bad, 0)).findLastIndex((line) => line.startsWith("TASK ["));
  const first = bad >= 0 ? Math.max(task, 0) : Math.max(lines.findIndex((line) => line.startsWith("PLAY [")), 0);
  const joined = (from, to) => lines.slice(from, to).map((line) => `${line}\n`).join("");
  return [joined(0, first), el("span", { id: "opened", class: bad >= 0 ? "bad" : "" }, joined(first, first + 1)), joined(first + 1)];
}
function scrollOutput() {
  const line = document.getElementById("opened");
  if (line) line.parentElement.scrollTop = line.offsetTop - 8;
}
const shortened = (path) => path.replace(/^.*\/((?:roles|playbooks|collections|project)\/)/, "$1");

// Output, objects and diffs of the displayed run, which do not change after its end.
let kept = { ident: "" };
function detailsOf(run) {
  const none = { objects: [], diffs: [] };
  if (!run.ended) return { ...none, loading: true };
  if (kept.ident !== run.ident) {
    kept = { ident: run.ident, ...none, loading: true };
    loadDetails(kept);
  }
  return kept;
}
async function loadDetails(wanted) {
  const [kind, namespace, name, ident] = route.parts;
  const query = new URLSearchParams({ kind, namespace: namespace === "-" ? "" : namespace, name, ident });
  try {
    const answer = await fetch(`api/details?${query}`);
    Object.assign(wanted, await answer.json(), { loading: false });
  } catch {
    kept = { ident: "" }; // the next update tries again
    return;
  }
  if (kept === wanted) redraw();
}

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
  if (route.view === "overview") drawOverview();
  else if (shown && shown.error) drawMissing(shown.error);
  else if (shown) VIEWS[route.view](shown);
}

async function load() {
  if (route.view === "overview") {
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
    document.getElementById("operator").textContent = overview.operator;
    document.getElementById("about").textContent = `${overview.cluster} · ${where} · version ${overview.version}`;
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

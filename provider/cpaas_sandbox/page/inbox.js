// The inbox page. Whatever a message says is shown as text: nothing here builds markup from strings.
"use strict";

const PAGE = 50;
const EVERY_MS = 1000;

const GOOD = new Set(["delivered", "opened", "clicked", "success", "acknowledged", "VERIFIED"]);
const BAD = new Set(["undelivered", "bounced", "failed", "error", "duplicate", "given up", "EXPIRED", "FAILED", "REVOKED"]);

const money = (n) => n.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const count = (n) => n.toLocaleString("en");
const cell = (value) => (Array.isArray(value) ? value.join(", ") : value === null ? "–" : String(value));

// name -> how an item reads in the list, and what its detail shows
const BOXES = {
  sms: {
    title: "SMS", none: "No SMS has been sent.", total: (c) => c.sms.recipients,
    line: (m) => [m.recipient, m.text, m.status],
    detail: (m) => [head(m.recipient, `from ${m.sender_id}`), el("pre", "bubble", m.text), facts(m, {
      Status: m.status, Channel: m.channel, Encoding: m.encoding, Length: m.length, Pages: m.pages,
      Trackable: m.is_trackable ? "yes" : "no" })],
  },
  email: {
    title: "Email", none: "No email has been sent.", total: (c) => c.email.recipients,
    line: (m) => [m.recipient, m.subject || m.text, m.status],
    detail: (m) => [
      head(m.subject || "(no subject)", `from ${m.from_name ? `${m.from_name} <${m.sender_id}>` : m.sender_id} to ${m.recipient}`),
      el("pre", "bubble letter", m.text), facts(m, { Status: m.status, "Reply to": m.reply_to })],
  },
  otp: {
    title: "OTP codes", none: "No one-time passcode has been requested.", total: (c) => c.otp.requested,
    line: (m) => [m.recipient, m.code, m.status_desc],
    detail: (m) => [head(m.recipient, `one-time passcode by ${m.channel}`), el("p", "code", m.code), el("pre", "bubble", m.text),
      facts(m, { Status: `${m.status} ${m.status_desc}`, "Wrong attempts": m.attempts, Expires: moment(m.expires_datetime) })],
  },
  airtime: {
    title: "Airtime", none: "No airtime has been bought.", total: (c) => c.airtime.purchases + c.airtime.duplicates,
    line: (m) => [m.recipient, `${m.network}, ${money(m.amount)}`, m.status],
    detail: (m) => [head(m.recipient, `${money(m.amount)} on ${m.network}`), facts(m, {
      Status: m.status, Amount: money(m.amount), Network: m.network, Refunded: m.refunded ? "yes" : "no" })],
  },
  contacts: {
    title: "Contacts", none: "The contact list is empty.", total: (c) => c.contacts.rows,
    line: (m) => [firstCell(m), restCells(m), ""],
    detail: (m) => [head(firstCell(m), "contact"), table(Object.entries(m.columns).map(([id, v]) => [names[id] || id, cell(v)])),
      facts(m, {})],
  },
  lookups: {
    title: "Lookups", none: "No number has been looked up.", total: (c) => c.lookups,
    line: (m) => [m.recipient, [m.answer.operator, m.answer.country].filter(Boolean).join(", "), m.answer.dnd ? "do not disturb" : ""],
    detail: (m) => [head(m.recipient, "phone lookup"), table(Object.entries(m.answer).map(([k, v]) => [k, cell(v)])), facts(m, {})],
  },
  reports: {
    title: "Reports", none: "There are no delivery reports.", total: (c) => c.reports.booked,
    line: (m) => [m.recipient, `${m.status}, ${endpointOf(m)}`, stateOf(m)],
    when: (m) => m.updated_datetime || m.created_datetime,
    detail: (m) => [head(m.recipient, `${m.status}, reported to ${m.url}`), el("pre", "bubble", JSON.stringify(m.body, null, 2)),
      facts(m, { State: stateOf(m), Result: m.result, Attempts: m.attempts, Endpoint: endpointOf(m),
        [m.state === "pending" ? "Next attempt" : "Was due"]: moment(m.due_datetime) })],
  },
  counters: { title: "Counters", total: () => null },
};

const $ = (id) => document.getElementById(id);
const view = { box: "sms", offset: 0, search: "", open: null, items: [], kept: null, reports: [], shown: "" };
const REPORTED = new Set(["sms", "email", "airtime"]);
const stateOf = (report) => report.state.replace("_", " ");
const endpointOf = (report) => (report.origin === "first" ? report.endpoint : `${report.endpoint}, ${report.origin}`);
let names = {};
let counters = null;

function el(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined && text !== null) node.textContent = text;
  return node;
}

function head(title, under) {
  const group = el("div");
  group.append(el("h2", "", title), el("p", "under", under));
  return group;
}

function table(rows) {
  const node = el("table");
  for (const [name, value] of rows) {
    const row = el("tr");
    const label = el("th", "", name);
    label.scope = "row";
    row.append(label, el("td", "", value));
    node.append(row);
  }
  return node;
}

function facts(m, own) {
  const all = { ...own, Charge: m.charge === undefined ? null : money(m.charge), Created: moment(m.created_datetime),
    Updated: moment(m.updated_datetime), Reference: m.external_ref, Template: m.template_id, Callback: m.callback,
    ID: m.message_id || m.id };
  const group = el("div");
  group.append(el("h3", "", "Details"),
    table(Object.entries(all).filter(([, v]) => v !== null && v !== undefined && v !== "").map(([k, v]) => [k, String(v)])));
  return group;
}

function moment(text) {
  return text ? new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }) : null;
}

function shortMoment(text) {
  if (!text) return "";
  const at = new Date(text);
  const today = new Date().toDateString() === at.toDateString();
  return today ? at.toLocaleTimeString(undefined, { timeStyle: "medium" }) : at.toLocaleDateString(undefined, { dateStyle: "medium" });
}

const filled = (m) => Object.values(m.columns).filter((v) => v !== null && v !== "").map(cell);
const firstCell = (m) => filled(m)[0] || "(empty row)";
const restCells = (m) => filled(m).slice(1).join(", ");

function badge(word) {
  return el("span", `badge ${GOOD.has(word) ? "good" : BAD.has(word) ? "bad" : "wait"}`, word);
}

// path -> what it last answered, and under which tag: what has not changed is not sent again
const known = new Map();

async function get(path) {
  const last = known.get(path);
  const headers = { Accept: "application/json", ...(last && { "If-None-Match": last.tag }) };
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.status === 304 && last) return last.value;
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  const value = await answer.json();
  if (known.size > 100) known.clear();
  if (answer.headers.get("etag")) known.set(path, { tag: answer.headers.get("etag"), value });
  return value;
}

function drawTabs() {
  for (const [name, box] of Object.entries(BOXES)) {
    const tab = el("button");
    tab.type = "button";
    tab.id = `tab-${name}`;
    tab.setAttribute("role", "tab");
    tab.append(box.title, el("span", "count", ""));
    tab.addEventListener("click", () => go({ box: name, offset: 0, search: "", open: null }));
    $("tabs").append(tab);
  }
}

function drawCounts() {
  for (const [name, box] of Object.entries(BOXES)) {
    const total = box.total(counters);
    const mark = $(`tab-${name}`).lastChild;
    mark.hidden = total === null;
    mark.textContent = total === null ? "" : count(total);
    $(`tab-${name}`).setAttribute("aria-selected", String(name === view.box));
  }
  $("balance").textContent = money(counters.balance);
  $("charged").textContent = money(counters.charged);
}

function drawItems(page, reports) {
  const box = BOXES[view.box];
  view.items = page.items;
  view.reports = reports;
  const shown = JSON.stringify([view.box, view.open, page, reports]);
  if (shown === view.shown) return; // nothing new: leave scrolling and selection alone
  view.shown = shown;
  const rows = page.items.map((m) => {
    const [who, what, word] = box.line(m);
    const row = el("li");
    row.tabIndex = 0;
    row.dataset.seq = m.seq;
    if (m.seq === view.open) row.setAttribute("aria-current", "true");
    row.append(el("span", "who", who), el("time", "when", shortMoment(box.when ? box.when(m) : m.created_datetime)),
      el("span", "what", what), word ? badge(word) : el("span"));
    return row;
  });
  const focused = document.activeElement?.closest("#items li")?.dataset.seq;
  $("items").replaceChildren(...rows);
  rows.find((row) => row.dataset.seq === focused)?.focus({ preventScroll: true });
  const last = page.offset + page.items.length;
  $("range").textContent = page.total ? `${count(page.offset + 1)} to ${count(last)} of ${count(page.total)}` : "";
  $("newer").disabled = page.offset === 0;
  $("older").disabled = last >= page.total;
  $("empty").hidden = page.total > 0;
  $("empty").textContent = view.search ? "No items for this recipient." : box.none;
  drawDetail();
}

function drawDetail() {
  // what is being read stays, also when newer messages have pushed it off this page of the list
  view.kept = view.items.find((m) => m.seq === view.open) || (view.kept?.seq === view.open ? view.kept : null);
  const open = view.kept;
  const parts = open ? BOXES[view.box].detail(open) : [];
  const nodes = open ? [...parts.slice(0, -1), ...told(view.reports), ...parts.slice(-1)] : [el("p", "hint", view.items.length ? "Select an item to read it." : "")];
  $("detail").replaceChildren(...nodes);
}

function told(reports) {
  if (!reports.length) return [];
  const group = el("div", "told");
  const list = el("ol");
  for (const report of reports) {
    const row = el("li");
    row.append(el("span", "", report.status), badge(stateOf(report)),
      el("span", "under", [endpointOf(report), `attempts: ${report.attempts}`, report.result].filter(Boolean).join(", ")));
    list.append(row);
  }
  group.append(el("h3", "", "Delivery reports"), list);
  return [group];
}

async function reportsOf(item) {
  if (!item || !REPORTED.has(view.box)) return [];
  const query = new URLSearchParams({ message_id: item.message_id || item.id, recipient: item.recipient, limit: PAGE });
  return (await get(`/_control/inbox/reports?${query}`)).items.reverse();
}

function drawCounters() {
  const grid = el("div", "grid");
  for (const [name, group] of Object.entries(counters)) {
    if (typeof group !== "object") continue;
    const part = el("div");
    const rows = Object.entries(group).map(([k, n]) => [k.replaceAll("_", " "), count(n)]);
    part.append(el("h3", "", name), rows.length ? table(rows) : el("p", "under", "none"));
    grid.append(part);
  }
  const shown = JSON.stringify(["counters", counters]);
  if (shown === view.shown) return;
  view.shown = shown;
  $("detail").replaceChildren(head("Counters", "requests, messages and reports since the last reset"), grid);
}

let round = 0;

async function refresh() {
  const mine = ++round;
  try {
    const box = view.box;
    const [clock, now] = await Promise.all([get("/_control/clock"), get("/_control/counters")]);
    counters = now;
    $("clock").textContent = moment(clock.now) + (clock.frozen ? " (frozen)" : "");
    drawCounts();
    document.querySelector("main").classList.toggle("wide", box === "counters");
    if (box === "counters") {
      drawCounters();
    } else {
      if (box === "contacts") names = (await get("/_control/table")).names;
      const query = new URLSearchParams({ limit: PAGE, offset: view.offset });
      if (view.search) query.set("search", view.search);
      const page = await get(`/_control/inbox/${box}?${query}`);
      const reports = await reportsOf(page.items.find((m) => m.seq === view.open) || view.kept);
      if (mine === round) drawItems(page, reports); // the reader may have turned elsewhere meanwhile
    }
    $("state").className = "state live";
    $("state").textContent = "live";
  } catch (error) {
    if (mine !== round) return;
    $("state").className = "state lost";
    $("state").textContent = "no response";
  }
}

function go(change) {
  Object.assign(view, change, { shown: "" });
  if ("box" in change) {
    view.kept = null;
    $("search").value = view.search;
    if (counters) drawCounts();
  }
  history.replaceState(null, "", view.open === null ? `#${view.box}` : `#${view.box}/${view.open}`);
  refresh();
}

function openRow(row) {
  if (!row) return;
  go({ open: Number(row.dataset.seq) });
}

let timer = null;
async function tick() {
  clearTimeout(timer);
  if (!document.hidden) await refresh();
  timer = setTimeout(tick, EVERY_MS);
}

// "#sms/17" names a box and the item open in it
function named(hash) {
  const [box, seq] = hash.slice(1).split("/");
  if (!Object.hasOwn(BOXES, box)) return { box: "sms", open: null };
  return { box, open: /^\d+$/.test(seq) ? Number(seq) : null };
}

drawTabs();
Object.assign(view, named(location.hash));
$("items").addEventListener("click", (event) => openRow(event.target.closest("li")));
$("items").addEventListener("keydown", (event) => {
  const row = event.target.closest("li");
  if (event.key === "Enter") openRow(row);
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (step && row && row[step]) { row[step].focus(); event.preventDefault(); }
});
$("newer").addEventListener("click", () => go({ offset: Math.max(0, view.offset - PAGE), open: null }));
$("older").addEventListener("click", () => go({ offset: view.offset + PAGE, open: null }));
let typing = null;
$("search").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => go({ search: $("search").value.trim(), offset: 0, open: null }), 200);
});
document.addEventListener("visibilitychange", tick);
window.addEventListener("hashchange", () => {
  const there = named(location.hash);
  if (there.box !== view.box || there.open !== view.open) go({ ...there, offset: 0, search: "" });
});
tick();

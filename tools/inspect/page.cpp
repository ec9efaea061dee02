#include "tools/inspect/page.hpp"

namespace kvlease::inspect {

std::string_view page_markup() {
  return R"html(<header>
<h1>kvlease</h1>
<span id="health" class="badge" role="status">…</span>
<span id="link" class="badge quiet" role="status">connecting</span>
<span id="facts"></span>
</header>
<div id="fatal" class="alarm" hidden></div>
<main>
<div class="column">
<section id="operations" aria-label="Operations"><h2>Operations <small id="operation-count"></small></h2>
<div class="legend"><span><i class="run"></i>access running</span><span><i class="ended"></i>access ended</span>
<span><i class="unproven"></i>unproven</span><span><i class="copy"></i>copies</span>
<span><i class="mark"></i>outcome</span></div>
<div id="operation-list"></div></section>
<section id="why" aria-label="Why" hidden><h2 id="why-title"></h2><div id="why-text"></div></section>
</div>
<div class="column">
<section id="pools" aria-label="Staging pools"><h2>Staging pools</h2><div class="legend">
<span><i class="free"></i>free</span><span><i class="lent"></i>lent</span>
<span><i class="awaiting"></i>awaiting proof</span><span><i class="quarantined"></i>quarantined</span>
</div><div id="pool-list"></div></section>
<section id="leases" aria-label="Held leases"><h2>Held leases <small id="lease-count"></small></h2>
<div class="scroll"><table><thead><tr><th>lease<th>way<th>state<th>size<th>age<th>held because</tr></thead>
<tbody id="lease-list"></tbody></table></div></section>
<section id="actors" aria-label="Actors"><h2>Actors</h2><div class="scroll"><table>
<thead><tr><th>actor<th>state<th>mailbox<th>handled<th>busy<th>longest wait</tr></thead>
<tbody id="actor-list"></tbody></table></div></section>
<section id="rest" aria-label="Providers, devices, registrations"><h2>Providers, devices, registrations</h2>
<div id="rest-list"></div></section>
</div>
</main>)html";
}

std::string_view page_style() {
  return R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--ink:#1c1e21;--soft:#62676d;--line:#dcdfe2;--card:#fff;
--free:#d7dde2;--lent:#3b82c4;--awaiting:#d9822b;--quarantined:#b3261e;--good:#2e7d4f;--copy:#7a5cc0}
@media(prefers-color-scheme:dark){:root{--bg:#16181b;--ink:#e6e8ea;--soft:#9aa1a8;--line:#33383d;
--card:#1d2024;--free:#3a4148}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:14px/1.45 system-ui,sans-serif}
header{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:center;padding:10px 16px;
border-bottom:1px solid var(--line);position:sticky;top:0;background:var(--bg);z-index:1}
h1{font-size:18px;margin:0}h2{font-size:15px;margin:0 0 8px}small{color:var(--soft);font-weight:400}
#facts{color:var(--soft)}
.badge{padding:2px 10px;border-radius:10px;background:var(--soft);color:#fff}
.badge.healthy,.badge.live{background:var(--good)}.badge.held,.badge.reconnecting{background:var(--awaiting)}
.badge.unproven{background:var(--quarantined)}
.alarm{background:var(--quarantined);color:#fff;padding:8px 16px}
main{display:grid;gap:12px;padding:12px 16px;grid-template-columns:minmax(0,1fr)}
.column{display:contents}#pools{order:-1}
@media(min-width:1100px){main{grid-template-columns:minmax(0,3fr) minmax(0,2fr);align-items:start}
.column{display:grid;gap:12px;grid-template-columns:minmax(0,1fr)}}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;min-width:0}
.legend{display:flex;flex-wrap:wrap;gap:4px 14px;color:var(--soft);font-size:12px;margin-bottom:6px}
.legend i{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:5px}
i.free{background:var(--free)}i.lent,i.run{background:var(--lent)}i.awaiting{background:var(--awaiting)}
i.quarantined,i.unproven{background:var(--quarantined)}i.ended{background:var(--good)}
i.copy{background:var(--copy)}i.mark{background:var(--ink);width:3px!important}
canvas{display:block;width:100%;margin:2px 0 10px}
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th{font-weight:500;color:var(--soft)}th,td{padding:3px 10px 3px 0;text-align:left;white-space:nowrap}
tr+tr td{border-top:1px solid var(--line)}
button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-decoration:underline}
button:focus-visible{outline:2px solid var(--lent)}
.op{padding:5px 0;border-top:1px solid var(--line)}.op:first-child{border-top:0}
.op .line{display:flex;flex-wrap:wrap;gap:2px 10px;align-items:baseline}
.op .due{margin-left:auto;color:var(--soft);font-variant-numeric:tabular-nums}
.op .due.soon{color:var(--quarantined);font-weight:600}
.bar{position:relative;height:12px;margin-top:3px;background:var(--free);border-radius:3px;overflow:hidden}
.bar div{position:absolute;top:0;bottom:0}
.bar .run{background:var(--lent)}.bar .ended{background:var(--good)}.bar .unproven{background:var(--quarantined)}
.bar .copy{background:var(--copy);top:6px}.bar .mark{width:3px;background:var(--ink)}
.why{color:var(--soft)}.bad{color:var(--quarantined);font-weight:600}
dl{display:grid;grid-template-columns:fit-content(40%) minmax(0,1fr);gap:2px 12px;margin:0 0 10px}
dt{color:var(--soft);overflow-wrap:anywhere}dd{margin:0;overflow-wrap:anywhere}
.stale main{opacity:.55})css";
}

std::string_view page_script() {
  return R"js('use strict';
const base = location.pathname.replace(/\/$/, '');
const $ = id => document.getElementById(id);
const el = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls;
  if (text !== undefined) e.textContent = text; return e; };
const span = s => { if (s === null || s === undefined) return ''; const a = Math.abs(s);
  const t = a < 1 ? Math.round(a * 1000) + ' ms' : a < 100 ? a.toFixed(1) + ' s'
    : a < 7200 ? Math.round(a / 60) + ' min' : (a / 3600).toFixed(1) + ' h'; return s < 0 ? '-' + t : t; };
const size = b => { let u = 0; while (b >= 1024 && u < 4) { b /= 1024; u++; }
  return (u ? b.toFixed(1) : b) + ' ' + ['B', 'KiB', 'MiB', 'GiB', 'TiB'][u]; };
const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
const states = {'.': 'free', L: 'lent', A: 'awaiting', Q: 'quarantined'};
let shown = null, at = 0, asked = null, since = 0;

function drawPool(canvas, map) {
  const width = Math.max(100, canvas.clientWidth || canvas.parentElement.clientWidth);
  const cell = map.length <= 512 ? 10 : map.length <= 4096 ? 6 : map.length <= 16384 ? 4 : 3;
  const columns = Math.max(1, Math.floor(width / cell)), rows = Math.ceil(map.length / columns);
  canvas.width = width; canvas.height = rows * cell; canvas.style.height = rows * cell + 'px';
  const c = canvas.getContext('2d'), fill = {};
  for (const k in states) fill[k] = colour(states[k]);
  for (let i = 0; i < map.length; i++) { c.fillStyle = fill[map[i]] || '#000';
    c.fillRect(i % columns * cell, Math.floor(i / columns) * cell, cell - 1, cell - 1); }
}
function pools(s) {
  const list = $('pool-list');
  while (list.children.length > s.pools.length) list.lastChild.remove();
  s.pools.forEach((p, i) => {
    let d = list.children[i];
    if (!d) { d = el('div', 'pool'); d.append(el('div', 'text'), el('canvas')); list.append(d);
      d.lastChild.setAttribute('role', 'img'); }
    const text = `${p.name}: ${p.total} slots of ${size(p.slot_bytes)}: ${p.free} free, ${p.lent} lent, ` +
      `${p.awaiting_proof} awaiting proof, ${p.quarantined} quarantined`;
    d.firstChild.textContent = text; d.lastChild.setAttribute('aria-label', text);
    drawPool(d.lastChild, p.map || '');
  });
}
function due(o, passed) {
  const pick = o.outcome ? ['fatal', o.fatal_in_seconds] : ['deadline', o.deadline_in_seconds];
  if (pick[1] === null || pick[1] === undefined) return ['', false];
  const left = pick[1] - passed;
  return [left >= 0 ? `${pick[0]} in ${span(left)}` : `${pick[0]} passed ${span(-left)} ago`, left < 1];
}
function bar(o, longest) {
  const b = el('div', 'bar'), share = v => 100 * Math.min(1, Math.max(0, v) / longest) + '%';
  const add = (cls, from, to) => { const d = el('div', cls); d.style.left = share(from);
    if (to !== undefined) d.style.width = share(to - from); b.append(d); };
  const cls = {running: 'run', ended: 'ended', unproven: 'unproven'}[o.access];
  if (cls) add(cls, 0, o.age_seconds);
  if (o.copies === 'pending' || o.copies === 'unproven' || o.copies === 'complete')
    add(o.copies === 'unproven' ? 'unproven' : 'copy', 0, o.age_seconds);
  if (o.outcome_age_seconds !== null) add('mark', o.age_seconds - o.outcome_age_seconds);
  b.title = `access ${o.access}, copies ${o.copies}, proof ${o.proof || 'none'}`;
  return b;
}
function whyButton(kind, id) { const b = el('button', '', id); b.type = 'button';
  b.onclick = () => { asked = [kind, id]; why(); }; return b; }
function operations(s) {
  const list = $('operation-list'), rows = s.operations.slice(0, 100);
  const longest = Math.max(0.001, ...rows.map(o => o.age_seconds));
  $('operation-count').textContent = s.operations_total > rows.length
    ? `the oldest ${rows.length} of ${s.operations_total}` : `${s.operations_total}`;
  list.replaceChildren(...rows.map(o => {
    const d = el('div', 'op'), line = el('div', 'line');
    line.append(whyButton('operation', o.id), el('span', '', o.way), el('span', '', o.outcome || 'pending'),
      el('span', o.access === 'unproven' || o.copies === 'unproven' ? 'bad' : 'why',
        o.reasons.join(', ').replaceAll('_', ' ')), el('span', 'why', span(o.age_seconds)));
    const t = el('span', 'due'); t.op = o; line.append(t); d.append(line, bar(o, longest)); return d; }));
  if (!rows.length) list.append(el('div', 'why', 'none'));
}
function rowOf(cells) { const tr = el('tr');
  for (const c of cells) { const td = el('td'); td.append(c); tr.append(td); } return tr; }
function leases(s) {
  const held = s.leases.filter(l => l.reasons.length).slice(0, 100);
  $('lease-count').textContent = `${held.length} of ${s.leases_total}`;
  $('lease-list').replaceChildren(...held.map(l => rowOf([whyButton('lease', l.id), l.way, l.state,
    size(l.bytes), span(l.age_seconds), l.reasons.join(', ').replaceAll('_', ' ')])));
}
function actors(s) {
  $('actor-list').replaceChildren(...s.actors.map(a => { const tr = rowOf([a.kind.replaceAll('_', ' '),
    a.answered ? a.state : `${a.state}, last heard ${span(a.age_seconds)} ago`, a.mailbox, a.handled,
    span(a.busy_seconds), span(a.oldest_unanswered_seconds)]);
    if (a.state !== 'up') tr.children[1].className = 'bad'; return tr; }));
}
function rest(s) {
  const d = el('dl'), add = (k, v) => d.append(el('dt', '', k), el('dd', '', v));
  for (const p of s.providers) add(p.uri, `${p.attempts} attempts, ${p.workers_busy} of ${p.workers} workers busy; ` +
    Object.entries(p.units).map(([k, v]) => `${v} ${k}`).join(', ') + `; can prove: ${p.proofs.join(', ')}`);
  for (const v of s.devices) add(v.name, v.lost ? `lost: ${v.lost}`
    : `${v.pending} copies pending of ${v.copies}, ${size(v.bytes)}, ${v.unproven} unproven`);
  for (const r of s.registrations) add(r.part, r.state + (r.reason ? `: ${r.reason}` : ''));
  $('rest-list').replaceChildren(d);
}
async function why() {
  if (!asked) return;
  const [kind, id] = asked, box = $('why-text');
  try {
    const r = await fetch(`${base}/why/${kind}/${encodeURI(id)}`), w = await r.json();
    $('why').hidden = false;
    $('why-title').textContent = `Why is ${kind} ${id} held?`;
    const head = el('div', '', !w.found ? 'It is not known.' : `State: ${w.state}. Outcome: ` +
      (w.outcome ? `${w.outcome}, ${span(w.outcome_age_seconds)} ago.` : 'undecided.'));
    const parts = (w.holders || []).map(h => { const d = el('dl'), add = (k, v) => v &&
        d.append(el('dt', '', k), el('dd', '', v));
      add('held', `${h.reason}: ${h.what}`); add('waits for', h.evidence && `${h.evidence}, from ${h.from}`);
      add('for', span(h.age_seconds)); add('last seen', h.last_evidence);
      add('next', h.next && h.next + (h.next_in_seconds !== null ? ` in ${span(h.next_in_seconds)}` : ''));
      return d; });
    if (w.found && !parts.length) parts.push(el('div', '', 'Nothing holds it.'));
    const lists = [['Safe to do', w.safe], ['Not known', w.unknown]].filter(l => l[1] && l[1].length)
      .map(l => el('div', 'why', `${l[0]}: ${l[1].join('; ')}`));
    box.replaceChildren(head, ...parts, ...lists);
  } catch (e) { /* the link badge tells */ }
}
function tick() {
  const passed = (performance.now() - at) / 1000;
  for (const t of document.querySelectorAll('.due')) { const [text, soon] = due(t.op, passed);
    t.textContent = text; t.classList.toggle('soon', soon); }
}
function show(s) {
  // Another process answers: what was asked of the one before is gone.
  const born = Date.parse(s.taken) - s.uptime_seconds * 1000;
  if (Math.abs(born - since) > 250) { asked = null; $('why').hidden = true; }
  since = born;
  shown = s; at = performance.now();
  $('health').textContent = s.health; $('health').className = 'badge ' + s.health;
  $('facts').textContent = `runtime ${s.runtime} · up ${span(s.uptime_seconds)} · exposure ${s.exposure_bytes} bytes` +
    (s.draining ? ' · draining' : '');
  $('fatal').hidden = !s.fatal;
  if (s.fatal) $('fatal').textContent = `Fatal: ${s.fatal.way} of request ${s.fatal.request}: ${s.fatal.reason}`;
  pools(s); operations(s); leases(s); actors(s); rest(s); tick();
}
function link(state) { $('link').textContent = state; $('link').className = 'badge ' + state;
  document.body.classList.toggle('stale', state === 'reconnecting'); }
async function poll() {
  const cut = new AbortController(), limit = setTimeout(() => cut.abort(), 5000);
  try {
    const r = await fetch(base + '/snapshot?limit=1000', {signal: cut.signal});
    if (!r.ok) throw new Error(r.status);
    show(await r.json()); link('live'); await why();
  } catch (e) { link('reconnecting'); }
  clearTimeout(limit); setTimeout(poll, 1000);
}
setInterval(tick, 100);
addEventListener('resize', () => shown && pools(shown));
poll();)js";
}

std::string page() {
  std::string out =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<title>kvlease</title><link rel=\"icon\" href=\"data:,\"><style>";
  out.append(page_style()).append("</style></head><body>").append(page_markup()).append("<script>");
  return out.append(page_script()).append("</script></body></html>\n");
}

}  // namespace kvlease::inspect

"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const root = document.documentElement;
  const PAGE = 20;

  // Every text from the data goes through textContent or setAttribute: never through markup.
  function el(tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
    return node;
  }

  const memory = {
    get(key) { try { return localStorage.getItem(key); } catch { return null; } },
    set(key, value) { try { localStorage.setItem(key, value); } catch { /* private window: nothing is kept */ } },
  };

  // ---- language and theme
  let zh = (memory.get("cleanse.language") || navigator.language || "en").toLowerCase().startsWith("zh");
  const say = (key, values = {}) => {
    const pair = data.words[key];
    const text = pair ? pair[zh ? 1 : 0] : key;
    return text.replace(/\{(\w+)\}/g, (_, name) => (name in values ? values[name] : ""));
  };
  const number = (n) => n.toLocaleString(zh ? "zh-CN" : "en-US");
  const short = (x) => (Number.isInteger(x) ? number(x) : Math.abs(x) >= 100 ? number(Math.round(x)) : String(+x.toPrecision(3)));

  function setLanguage() {
    root.lang = zh ? "zh-Hans" : "en";
    root.classList.toggle("zh", zh);
    const button = $("language");
    button.textContent = zh ? "English" : "中文";
    button.lang = zh ? "en" : "zh-Hans";
    for (const option of document.querySelectorAll("[data-word]")) option.textContent = say(option.dataset.word);
    for (const node of document.querySelectorAll("[data-label]")) {
      node.setAttribute("aria-label", say("js." + node.dataset.label));
      if (node.tagName === "BUTTON") node.title = say("js." + node.dataset.label);
    }
  }
  $("language").addEventListener("click", () => {
    zh = !zh;
    memory.set("cleanse.language", zh ? "zh" : "en");
    setLanguage();
    if (list) { draw(); drawDecided(); }
  });
  function setTheme(theme) {
    if (theme) root.dataset.theme = theme;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    $("theme").setAttribute("aria-pressed", String(dark));
    return dark;
  }
  setTheme(memory.get("cleanse.theme"));
  $("theme").addEventListener("click", () => {
    const next = setTheme() ? "light" : "dark";
    setTheme(next);
    memory.set("cleanse.theme", next);
  });

  const list = $("list");
  if (!list) { setLanguage(); return; }

  // ---- where records come from: this page, or the review server
  const live = data.mode === "live";
  const stateOf = (record) => (record.state === "quarantined" ? "held" : record.state);
  if (!live) for (const record of data.records) record.searched = searchText(record);

  function searchText(record) {
    const parts = [record.id];
    const walk = (pieces) => {
      for (const piece of pieces || []) {
        if (typeof piece === "string") parts.push(piece);
        else if (piece.h) parts.push(piece.h);
        else if (piece.m) walk(piece.m);
      }
    };
    for (const field of record.fields || []) walk(field.pieces);
    for (const field of record.fields || []) for (const change of field.before || []) walk(change.pieces);
    walk(record.raw);
    for (const finding of record.findings) parts.push(finding.rule, finding.message, finding.excerpt || "");
    return parts.join("\n").toLowerCase();
  }

  async function query(filter, offset, limit) {
    if (live) {
      const answer = await fetch("api/records?" + new URLSearchParams({ ...filter, offset, limit }));
      if (!answer.ok) throw new Error(String(answer.status));
      return answer.json();
    }
    const words = filter.q.toLowerCase();
    const found = data.records.filter((record) =>
      (filter.id ? record.id === filter.id :
        (filter.state === "any" ? record.state !== "control" : stateOf(record) === filter.state) &&
        (!filter.rule || record.findings.some((f) => f.rule === filter.rule) || record.reasons.includes(filter.rule)) &&
        (!filter.source || record.source === filter.source) &&
        (!filter.decision || (decisions.get(record.id)?.decision || "undecided") === filter.decision) &&
        (!words || record.searched.includes(words))));
    return { total: found.length, records: found.slice(offset, offset + limit) };
  }

  // ---- decisions
  const decisions = new Map();
  const storage = "cleanse.decisions." + data.run;
  function load(items) {
    for (const item of items) {
      if (item && typeof item.id === "string" && (item.decision === "release" || item.decision === "agree")) {
        decisions.set(item.id, { id: item.id, decision: item.decision, note: String(item.note || "") });
      }
    }
  }
  if (live) load(data.decisions);
  else { try { load(JSON.parse(memory.get(storage) || "[]")); } catch { /* nothing usable was kept */ } }

  function asFile() {
    return { format: "cleanse-decisions/1", decisions: [...decisions.values()].sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0)) };
  }
  let saving = Promise.resolve();
  function save(ids) {
    drawDecided();
    if (!live) { memory.set(storage, JSON.stringify([...decisions.values()])); return; }
    const body = JSON.stringify({ changes: ids.map((id) => decisions.get(id) || { id, decision: null }) });
    saving = saving.then(() => fetch("api/decisions", { method: "POST", headers: { "content-type": "application/json" }, body }))
      .then((answer) => { if (!answer.ok) throw new Error(String(answer.status)); $("decided-count").append(" · " + say("js.saved")); })
      .catch(() => { $("decided-count").textContent = say("js.failed"); });
  }
  function decide(record, decision, card) {
    const before = decisions.get(record.id);
    if (before && before.decision === decision) decisions.delete(record.id);
    else decisions.set(record.id, { id: record.id, decision, note: before ? before.note : "" });
    save([record.id]);
    const fresh = drawRecord(record);
    card.replaceWith(fresh);
    fresh.querySelector("button." + decision)?.focus();
  }
  function drawDecided() {
    const n = { release: 0, agree: 0 };
    for (const item of decisions.values()) n[item.decision] += 1;
    $("decided").hidden = decisions.size === 0;
    $("decided-count").textContent = say("js.decided", { release: number(n.release), agree: number(n.agree) });
  }
  $("export").addEventListener("click", () => {
    const link = el("a", { href: URL.createObjectURL(new Blob([JSON.stringify(asFile(), null, 2) + "\n"], { type: "application/json" })), download: "decisions.json" });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
  $("clear").addEventListener("click", () => { const ids = [...decisions.keys()]; decisions.clear(); save(ids); draw(); });
  $("import")?.addEventListener("change", async (event) => {
    try {
      const read = JSON.parse(await event.target.files[0].text());
      if (read.format !== "cleanse-decisions/1" || !Array.isArray(read.decisions)) throw new Error("format");
      load(read.decisions);
      save([]);
      draw();
    } catch { $("count").textContent = say("js.bad_file"); }
    event.target.value = "";
  });

  // ---- drawing
  function drawPieces(pieces) {
    return pieces.map((piece) => {
      if (typeof piece === "string") return piece;
      if (piece.h) return el("span", { class: "pill", title: piece.c }, piece.n > 1 ? `${piece.h} ×${number(piece.n)}` : piece.h);
      if (piece.m) return el("mark", { title: piece.r.join(", ") }, drawPieces(piece.m));
      if (piece.k !== undefined) return el("span", { class: "k" + piece.k, title: piece.l + " nats" }, drawPieces(piece.t));
      return el("span", { class: "elided" }, " … " + say("js.elided", { n: number(piece.e) }) + " … ");
    });
  }
  function drawText(pieces) {
    if (pieces === null) return el("span", { class: "elided" }, say("js.null"));
    if (!pieces.length || (pieces.length === 1 && pieces[0] === "")) return el("span", { class: "elided" }, say("js.empty"));
    return el("span", { class: "text", dir: "auto" }, drawPieces(pieces));
  }
  function drawField(field) {
    const parts = [el("div", { class: "name" }, el("code", {}, field.name), field.n ? ` · ${number(field.n)}` : null)];
    if (field.before) {
      for (const change of field.before) {
        parts.push(el("dl", { class: "change" }, el("dt", {}, say("js.before") + " · " + change.rule), el("dd", {}, el("q", { dir: "auto" }, drawPieces(change.pieces)))));
      }
      parts.push(el("div", { class: "name" }, say("js.after")));
    }
    parts.push(el("div", { class: "body", tabindex: field.n > 600 ? "0" : null }, drawText(field.pieces)));
    return el("div", { class: "field" }, parts);
  }
  function drawFinding(finding) {
    const excerpt = finding.field || !finding.excerpt ? null : el("q", { dir: "auto" }, finding.excerpt);
    const place = finding.field ? el("span", { class: "quiet" }, " " + finding.field) : null;
    return el("li", { class: finding.action }, el("code", {}, finding.rule), place, " ", finding.message, excerpt);
  }
  function drawProbe(probe) {
    const items = ["loss", "max_token_loss", "grad_norm", "p_value", "n_tokens"].filter((name) => name in probe)
      .map((name) => el("span", {}, say("js." + name) + " ", el("b", {}, short(probe[name]))));
    if (probe.not_finite) items.push(el("b", {}, say("js.not_finite")));
    if (probe.problem) items.push(el("span", {}, probe.problem));
    if (probe.worst.length && probe.worst[0] !== "") items.push(el("span", { class: "worst" }, say("js.worst") + ": ", drawText(probe.worst)));
    if (probe.tokens) items.push(el("div", { class: "worst" }, say("js.token_losses"), el("div", { class: "body" }, drawText(probe.tokens))));
    return el("div", { class: "measured" }, items);
  }
  function drawRecord(record) {
    const decision = decisions.get(record.id);
    const card = el("article", { class: "record " + (decision ? decision.decision : ""), "aria-label": record.name });
    const head = el("header", {},
      el("h3", {}, el("a", { href: "#r=" + encodeURIComponent(record.id) }, el("code", {}, record.name))),
      el("span", { class: "tag " + record.state }, say("state." + record.state)));
    if (record.state === "quarantined" || decision) {
      const button = (what) => el("button", { type: "button", class: what, "aria-pressed": String(decision?.decision === what), onclick: () => decide(record, what, card) }, say(what));
      const note = decision ? el("input", { type: "text", value: decision.note, maxlength: 500, placeholder: say("js.note"), "aria-label": say("js.note"), onchange: (event) => { decisions.set(record.id, { ...decisions.get(record.id), note: event.target.value }); save([record.id]); } }) : null;
      head.append(el("div", { class: "choice" }, note, button("release"), button("agree")));
    }
    const found = el("ul", { class: "found" }, record.findings.map(drawFinding));
    if (record.more_findings) found.append(el("li", { class: "quiet" }, say("js.more_findings", { n: number(record.more_findings) })));
    card.append(head, found);
    if (record.unknown) card.append(el("p", { class: "quiet" }, say("js.unknown")));
    if (record.raw) card.append(el("div", { class: "field" }, el("div", { class: "name" }, say("js.raw")), el("div", { class: "body" }, drawText(record.raw))));
    for (const field of record.fields || []) card.append(drawField(field));
    if (record.more_fields) card.append(el("p", { class: "quiet" }, say("js.more_fields", { n: number(record.more_fields) })));
    if (record.probe) card.append(drawProbe(record.probe));
    return card;
  }

  let only = "";
  let shown = 0;
  let turn = 0;
  const filter = () => ({ id: only, q: $("q").value.trim(), state: $("f-state").value, rule: decodeURIComponent($("f-rule").value), source: decodeURIComponent($("f-source")?.value || ""), decision: $("f-decision").value });
  async function draw(further = false) {
    const mine = ++turn;
    const from = further ? shown : 0;
    const limit = further ? PAGE : Math.max(PAGE, further === null ? shown : 0);
    let found;
    try { found = await query(filter(), from, limit); } catch { $("count").textContent = say("js.failed"); return; }
    if (mine !== turn) return;
    const cards = found.records.map(drawRecord);
    if (further) list.append(...cards);
    else list.replaceChildren(...cards);
    shown = from + cards.length;
    $("count").textContent = found.total === 1 ? say("js.count_one") : found.total ? say("js.count", { n: number(found.total) }) : say(only ? "js.absent" : "js.nothing");
    $("more").hidden = shown >= found.total;
    if (further && cards.length) cards[0].querySelector("h3 a").focus();
  }
  let timer = 0;
  const refilter = () => { only = ""; draw(); };
  $("q").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refilter, live ? 300 : 120); });
  for (const id of ["f-state", "f-rule", "f-source", "f-decision"]) $(id)?.addEventListener("change", refilter);
  $("filters").addEventListener("submit", (event) => { event.preventDefault(); refilter(); });
  $("more").addEventListener("click", () => draw(true));

  async function follow() {
    const [, kind, value] = /^#(r|rule|state)=(.*)$/.exec(location.hash) || [];
    if (!kind) return;
    only = "";
    const wanted = decodeURIComponent(value);
    $("q").value = "";
    $("f-decision").value = "";
    if ($("f-source")) $("f-source").value = "";
    $("f-rule").value = kind === "rule" ? value : "";
    $("f-state").value = kind === "state" ? wanted : "any";
    if (kind === "r") only = wanted;
    await draw();
    $("records").scrollIntoView();
    list.querySelector("h3 a")?.focus({ preventScroll: true });
  }
  addEventListener("hashchange", follow);

  setLanguage();
  drawDecided();
  if (/^#(r|rule|state)=/.test(location.hash)) follow();
  else draw();
})();

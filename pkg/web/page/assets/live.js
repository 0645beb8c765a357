// Keeps the page as new as the daemon: an event says that something changed, the
// server renders it, and the new markup is put in place of the old. Nothing is
// rendered here but durations that go on.
"use strict";
(() => {
  const SHORTEST = 1000;     // ms between two fetches
  const EVERY = 10000;       // ms after which everything is fetched without an event
  const POLL = 5000;         // ms between fetches while there is no event stream
  const HIDDEN = 60000;      // ms between fetches of a page that nobody sees: its title is seen
  const TIMEOUT = 8000;      // ms for an answer
  const HOST = 5000;         // ms between two fetches of the host's part
  const REBUILD = 30000;     // ms before the page of another build is loaded
  const RETRY = 3000;        // ms before the event stream is opened again
  // What changes all the time without a change in what is shown.
  const RESTLESS = new Set(["seconds", "journal_lines", "journal_stale_lines", "journal_unmatched_lines", "journal_lag_seconds"]);

  const $ = (id) => document.getElementById(id);
  const main = $("units");
  let stream = null, streaming = false;
  const build = $("data").dataset.build;
  let all = false;           // everything has to be fetched
  const dirty = new Set();   // the names of units that have to be
  let host = false, lastHost = 0; // the host's part has to be, and when it was
  const seen = new Map();    // what was last told of each unit, and of the host
  let busy = false, timer = 0, reopen = 0;
  let lastTry = 0, lastGood = Date.now();
  // Durations go on from the moment that their markup was fetched.
  let fresh = true;
  const begun = new WeakMap();

  // ---- the connection, said plainly

  function say(state) {
    const link = $("link");
    if (link.dataset.state === state && state !== "lost") return;
    const clock = $("data").dataset.clock;
    const words = {
      live: ["●", "live"],
      polling: ["◐", "no event stream; loaded again every " + POLL / 1000 + " s"],
      lost: ["✖", "connection lost, retrying; data of " + clock],
    }[state];
    if (link.dataset.state !== state || $("link-text").textContent !== words[1]) {
      link.dataset.state = state;
      $("link-mark").textContent = words[0];
      $("link-text").textContent = words[1];
    }
    document.body.classList.toggle("lost", state === "lost");
    fresh = state !== "lost";
  }

  // ---- durations

  // Formats as the server does.
  function took(s) {
    s = Math.max(s, 0);
    if (s < 9.95) return s.toFixed(1) + "s";
    s = Math.round(s);
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    const two = (n) => String(n).padStart(2, "0");
    if (h > 0) return h + "h " + two(m) + "m";
    return m > 0 ? m + "m " + two(s % 60) + "s" : s + "s";
  }

  function tick() {
    if (!fresh || document.hidden) return;
    const now = Date.now();
    for (const el of document.querySelectorAll("[data-base]")) {
      const base = el.dataset.base;
      let b = begun.get(el);
      if (!b || b.base !== base) begun.set(el, b = { base, at: lastGood });
      const gone = (now - b.at) / 1000;
      let text;
      switch (el.dataset.kind) {
        case "up": text = took(+base + gone); break;
        case "ago": text = took(+base + gone) + " ago"; break;
        default: {
          const left = +base - gone;
          text = left < 0 ? took(-left) + " overdue" : "in " + took(left);
        }
      }
      const node = el.firstChild;
      if (node && node.data !== text) node.data = text;
    }
  }

  // ---- new markup in place of the old

  const callbacks = {
    // Unfolding is the reader's; the server only unfolds what has become urgent.
    beforeAttributeUpdated: (name) => name !== "open",
    beforeNodeMorphed(old, next) {
      if (old.nodeType !== 1 || next.nodeType !== 1) return true;
      if (old.classList.contains("plot") && next.classList.contains("plot")) return false;
      if (old.tagName === "DETAILS" && old.dataset.fold === "closed" && next.dataset.fold === "open") old.open = true;
      return true;
    },
  };

  // What is moved loses a selection in it: select the same nodes again.
  function place(target, html, style) {
    const s = getSelection();
    const held = s.isCollapsed ? null : [s.anchorNode, s.anchorOffset, s.focusNode, s.focusOffset];
    Idiomorph.morph(target, html, { morphStyle: style, callbacks });
    if (!held || !held[0].isConnected || !held[2].isConnected) return;
    if (held[0] === s.anchorNode && held[1] === s.anchorOffset && held[2] === s.focusNode && held[3] === s.focusOffset) return;
    try {
      s.setBaseAndExtent(...held);
    } catch {
      // A text that has become shorter; the reader selects anew.
    }
  }

  async function get(url) {
    const stop = new AbortController();
    const limit = setTimeout(() => stop.abort(), TIMEOUT);
    try {
      const r = await fetch(url, { cache: "no-store", signal: stop.signal });
      return { status: r.status, ok: r.ok, text: await r.text() };
    } finally {
      clearTimeout(limit);
    }
  }

  // A proxy's page of login or error must not take the place of ours.
  function check(r, begin) {
    if (!r.ok || !r.text.startsWith(begin)) throw new Error("status " + r.status);
  }

  async function fetchAll() {
    const r = await get("page/units");
    check(r, '<div id="data"');
    lastGood = lastHost = Date.now();
    host = false;
    place(main, r.text, "innerHTML");
    const data = $("data");
    // Not at once again: two builds behind one address would never let it rest.
    if (data.dataset.build !== build && performance.now() > REBUILD) location.reload();
    document.title = data.dataset.title;
  }

  async function fetchPart(url, section) {
    const r = await get(url);
    if (r.status === 404) {
      all = true;
      return;
    }
    check(r, "<section ");
    lastGood = Date.now();
    place(section, r.text, "outerHTML");
  }

  async function fetchParts(names, sections) {
    for (const [i, n] of names.entries()) await fetchPart("page/unit?unit=" + encodeURIComponent(n), sections[i]);
    if (!host || Date.now() - lastHost < HOST) return;
    host = false;
    lastHost = Date.now();
    await fetchPart("page/host", $("host"));
  }

  async function flush() {
    timer = 0;
    if (busy) return;
    busy = true;
    lastTry = Date.now();
    const names = [...dirty];
    // A unit that changes its place, or is new, needs the whole.
    const sections = names.map((n) => main.querySelector('section[data-unit="' + CSS.escape(n) + '"]'));
    const whole = all || names.length > 3 || sections.includes(null);
    all = false;
    dirty.clear();
    try {
      if (whole) await fetchAll();
      else await fetchParts(names, sections);
      say(streaming ? "live" : "polling");
      tick();
      document.dispatchEvent(new CustomEvent("placed"));
    } catch {
      all = true;
      say("lost");
    }
    busy = false;
    if (all || dirty.size) later();
  }

  function later() {
    if (timer || busy) return;
    const wait = document.hidden ? HIDDEN : $("link").dataset.state === "lost" ? RETRY : SHORTEST;
    timer = setTimeout(flush, Math.max(0, lastTry + wait - Date.now()));
  }

  function refresh() {
    all = true;
    later();
  }

  // ---- events

  function changed(key, value) {
    const text = JSON.stringify(value, (k, v) => (RESTLESS.has(k) ? undefined : v));
    if (seen.get(key) === text) return false;
    seen.set(key, text);
    return true;
  }

  function compare(status) {
    if (changed("host", { gpus: status.gpus, sources: status.sources })) host = true;
    if (changed("names", status.units.map((u) => u.unit + " " + u.state))) all = true;
    for (const u of status.units) {
      if (changed("unit " + u.unit, u)) dirty.add(u.unit);
    }
    if (all || dirty.size || (host && Date.now() - lastHost >= HOST)) later();
  }

  function tell(t) {
    if (t.from !== t.to) $("tell").textContent = t.unit + ": " + t.from + ", now " + t.to;
  }

  // Data that can't be read is a reason to fetch, not to fail.
  const parsed = (use) => (e) => {
    try {
      use(JSON.parse(e.data));
    } catch {
      refresh();
    }
  };

  function open() {
    clearTimeout(reopen);
    if (stream) stream.close();
    streaming = false;
    const s = stream = new EventSource("api/v1/events");
    s.onopen = () => {
      if (s !== stream) return;
      streaming = true;
      refresh();
    };
    s.onerror = () => {
      if (s !== stream) return;
      streaming = false;
      say("lost");
      // The browser does not try again after an answer that is no stream.
      if (s.readyState === EventSource.CLOSED) {
        clearTimeout(reopen);
        reopen = setTimeout(open, RETRY);
      }
      refresh();
    };
    s.addEventListener("snapshot", parsed((d) => { compare(d); refresh(); }));
    s.addEventListener("update", parsed(compare));
    s.addEventListener("transition", parsed((d) => { if (!d.replayed) tell(d); refresh(); }));
    for (const type of ["finding", "root_cause", "outcome", "stall"]) {
      s.addEventListener(type, parsed((d) => {
        if (type === "finding") dirty.add(d.unit);
        else all = true;
        later();
      }));
    }
    // Events are missing; what is shown is made of the whole state anyway.
    s.addEventListener("reset", refresh);
    s.addEventListener("dropped", refresh);
  }

  function watch() {
    const age = Date.now() - lastTry;
    if (age >= (document.hidden ? HIDDEN : streaming ? EVERY : POLL)) refresh();
    // A computer that slept shows the time before it slept.
    if (Date.now() - lastGood > 3 * EVERY && !document.hidden) say("lost");
  }

  // An anchor leads into a folded unit: unfold it.
  function unfold() {
    const at = location.hash.length > 1 && $(location.hash.slice(1)); // ids need no escapes
    const fold = at && at.querySelector(":scope > details.fold");
    if (fold) fold.open = true;
  }

  // A browser has few connections to a host: a page that nobody sees gives its
  // stream back.
  let leave = 0;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(leave);
    if (document.hidden) {
      leave = setTimeout(() => {
        stream.close();
        streaming = false;
      }, HIDDEN);
      return;
    }
    if (Date.now() - lastGood > EVERY) say("lost");
    if (stream.readyState === EventSource.CLOSED) open();
    clearTimeout(timer);
    timer = 0;
    refresh();
  });
  addEventListener("hashchange", unfold);
  main.addEventListener("click", (e) => { if (e.target.closest("#overview a")) setTimeout(unfold); });
  // A page that is left keeps no stream open; one that comes back opens it anew.
  addEventListener("pagehide", () => stream.close());
  addEventListener("pageshow", (e) => { if (e.persisted) open(); });

  unfold();
  open();
  setInterval(tick, 200);
  setInterval(watch, 1000);
})();

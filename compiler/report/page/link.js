// ── link.js: the page's address says what is seen, so that it can be sent: #p=micro&t=0-5000&e=g8b. ───────────────────────────────
// p: the program. t: the range that is seen, in microseconds. e, s, m, r: the selected event, storage, module or range. a: the arena; z: its addresses that are seen. tab; c: critical path.

// Names may hold anything; what reads well in an address stays as it is.
function linkText(pairs) {
  return "#" + Object.entries(pairs).filter(p => p[1] !== undefined && p[1] !== "").map(([k, v]) => k + "=" + encodeURIComponent(v).replaceAll("%2F", "/")).join("&");
}
function linkPairs(hash) {
  const pairs = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0) try { pairs[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); } catch { /* not one of ours */ }
  }
  return pairs;
}
// "3-5.5": two numbers, in ascending order; null: they are not.
function linkRange(text) {
  const m = /^(-?[\d.]+(?:e-?\d+)?)-([\d.]+(?:e-?\d+)?)$/.exec(text || ""), [a, z] = m ? [Number(m[1]), Number(m[2])] : [0, 0];
  return z > a ? [a, z] : null;
}

class Link {
  // say(): the pairs of what is seen now. apply(pairs): shows it.
  constructor(say, apply) {
    Object.assign(this, { say, apply, waiting: 0 });
    this.first = linkText(say()); // of a page that nobody has touched: its address stays as it is
    addEventListener("hashchange", () => this.read());
    this.read();
  }
  read() {
    const hash = location.hash;
    if (hash.length > 1 && hash !== this.last) this.apply(linkPairs(this.last = hash));
  }
  // A while after what is seen has changed last.
  changed() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      const text = linkText(this.say());
      if (text === this.last || (!this.last && text === this.first)) return;
      this.last = text;
      history.replaceState(null, "", text);
    }, 200);
  }
  // Of what is seen now.
  get address() { return location.href.split("#")[0] + linkText(this.say()); }
}

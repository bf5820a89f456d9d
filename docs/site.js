/* Search and filters of the site, which work on pages opened from disk.

Material's search field asks a Worker. Browsers give none to a page from disk, and Material's finds words between spaces alone, which Chinese does
not have. This one takes its place: it looks for every term as it stands, anywhere in a title or a text, and answers with the same messages. */
"use strict";

window.Worker = class extends EventTarget {
  postMessage({type, data}) {
    if (type === 0) {
      this.entries = data.docs.map(entry => ({...entry, title: plain(entry.title), text: plain(entry.text)}));
      this.answer({type: 1});
    } else if (type === 2) {
      this.answer({type: 3, data: {items: search(this.entries, data)}});
    }
  }
  answer(data) {
    setTimeout(() => this.dispatchEvent(new MessageEvent("message", {data})));
  }
};

const ENTITIES = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#39;": "'", "&para;": "", "&#124;": "|"};
const plain = html => html.replace(/<[^>]*>/g, " ").replace(/&[#\w]+;/g, entity => ENTITIES[entity] ?? entity).replace(/\s+/g, " ").trim();
const escaped = text => text.replace(/[<>&]/g, mark => ({"<": "&lt;", ">": "&gt;", "&": "&amp;"})[mark]);

/* The sections that have all terms, by page; pages in the reader's language first among equals. */
function search(entries, query) {
  const terms = query.toLowerCase().replace(/[*+~^"]/g, " ").split(/\s+/).filter(Boolean);
  const here = location.pathname.includes("/zh/");
  const pages = new Map();
  for (const entry of terms.length ? entries : []) {
    const page = entry.location.split("#")[0];
    const score = rank(entry, terms);
    if (page === entry.location) pages.set(page, {own: entry, score, found: []});
    if (score) pages.get(page)?.found.push({...entry, score});
  }
  const best = group => Math.max(...group.found.map(entry => entry.score)) + (here === group.own.location.startsWith("zh/") ? 1.5 : 0);
  return [...pages.values()].filter(group => group.found.length).sort((a, b) => best(b) - best(a)).map(({own, score, found}) => {
    const listed = score ? found : [...found, {...own, score: 0}];
    return listed.sort((a, b) => b.score - a.score)
      .map(entry => ({...entry, title: marked(entry.title, terms), text: teaser(entry.text, terms), terms: {}}));
  });
}

/* 0 unless all terms are there; titles count more than texts, and what a text begins with more than what comes later. */
function rank({title, text, location}, terms) {
  let score = location.includes("#") ? 0 : 3;
  const [head, body] = [title.toLowerCase(), text.toLowerCase()];
  for (const term of terms) {
    const place = body.indexOf(term);
    if (head === term) score += 8;
    else if (head.includes(term)) score += 4;
    else if (place >= 0) score += place < 80 ? 2 : 1;
    else return 0;
  }
  return score;
}

function teaser(text, terms) {
  const first = Math.min(...terms.map(term => text.toLowerCase().indexOf(term)).filter(place => place >= 0));
  const from = Number.isFinite(first) ? Math.max(0, first - 60) : 0;
  const cut = text.slice(from, from + 180);
  return `<p>${from ? "… " : ""}${marked(cut, terms)}${from + 180 < text.length ? " …" : ""}</p>`;
}

function marked(text, terms) {
  const any = new RegExp(terms.map(term => term.replace(/[^\p{L}\p{N}\s]/gu, "\\$&")).join("|"), "gi");
  let [done, html] = [0, ""];
  for (const match of text.matchAll(any)) {
    html += `${escaped(text.slice(done, match.index))}<mark>${escaped(match[0])}</mark>`;
    done = match.index + match[0].length;
  }
  return html + escaped(text.slice(done));
}

/* A field above a table hides the rows that lack what is typed. Names are the same with or without prefixes, capitals and underscores; rows
with a name that begins so come first. */
const bare = text => text.toLowerCase().replace(/<=/g, "≤").replace(/>=/g, "≥").replace(/[\s_^·*−-]/g, "");
const AROUND = /^(torch\.ops\.aten\.|torch\.nn\.functional\.|torch\.nn\.|torch\.|nn\.|F\.|openaclnn\.)|GetWorkspaceSize$/g;

/* What the theme leaves out for readers without a mouse or a screen: a name for the search, and boxes of tables and pictures that keys can scroll. */
window.addEventListener("load", () => {
  document.querySelector(".md-search")?.setAttribute("aria-label", document.querySelector(".md-search__input")?.placeholder || "Search");
  const scrolled = ".md-typeset__scrollwrap, .md-typeset p:has(> img), .md-typeset .diagram code";
  for (const box of document.querySelectorAll(scrolled)) box.tabIndex = 0;
});

document.addEventListener("DOMContentLoaded", () => {
  for (const field of document.querySelectorAll("input.filter")) {
    const body = document.querySelector(".md-content table").tBodies[0];
    const rows = [...body.rows].map(row => ({
      row, text: bare(row.textContent), names: [...row.querySelectorAll("a, td > code")].map(name => bare(name.textContent.replace(AROUND, ""))),
    }));
    const filter = () => {
      const typed = bare(field.value.trim().replace(AROUND, ""));
      const first = ({names}) => Number(names.includes(typed)) * 2 + Number(names.some(name => name.startsWith(typed)));
      rows.forEach(each => { each.row.hidden = !each.text.includes(typed); });
      body.append(...(typed ? [...rows].sort((a, b) => first(b) - first(a)) : rows).map(each => each.row));
      field.nextElementSibling.textContent = typed ? `${rows.filter(each => !each.row.hidden).length} / ${rows.length}` : "";
    };
    field.hidden = false;
    field.addEventListener("input", filter);
    filter();
  }
});

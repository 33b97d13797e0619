// Nodes without parsing HTML: text comes from strangers, so it goes in as text, and attributes by name.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  play: "M5 3.5v9l7.5-4.5z",
  pause: "M4.5 3.5h2.4v9H4.5zM9.1 3.5h2.4v9H9.1z",
  out: "M5 11l6-6M6.5 5H11v4.5",
  in: "M11 5l-6 6M9.5 11H5V6.5",
  web: "M2.5 8a5.500 5.500 0 1 0 11 0a5.500 5.500 0 1 0-11 0M2.500 8h11M8 2.500c3.200 3 3.200 8 0 11M8 2.500c-3.200 3-3.200 8 0 11",
  more: "M8 3.5v9M3.5 8h9",
  less: "M3.5 8h9",
  link: "M6.5 9.500l3-3M7 4.500l1-1a3 3 0 0 1 4.500 4.200l-1.200 1.200M9 11.500l-1 1a3 3 0 0 1-4.500-4.200l1.200-1.200",
  down: "M8 2.500v8M4.500 7.500L8 11l3.500-3.500M3 13.500h10",
};

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "vars") for (const [key, each] of Object.entries(value)) node.style.setProperty(`--${key}`, each);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const at = (id) => document.getElementById(id);

export function icon(name, solid = false) {
  return s("svg", { class: solid ? "i solid" : "i", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}

// A stranger's words keep their direction to themselves.
export const said = (text, attributes) => h("bdi", attributes, text);
export const number = (text) => h("bdi", { class: "ltr", dir: "ltr" }, text);

export function clock(seconds, digits = 0) {
  const whole = Math.abs(seconds);
  const unit = 10 ** digits;
  const rounded = Math.round(whole * unit) / unit;
  const minutes = Math.floor(rounded / 60);
  const rest = (rounded - minutes * 60).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return `${seconds < 0 && rounded > 0 ? "−" : ""}${minutes}:${rest}`;
}

export const ms = (value) => (value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${Math.round(value)} ms`);

export function moment(iso) {
  if (!iso) return "";
  return new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" }).format(new Date(iso));
}

export function tabs(list) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const show = (chosen) => all.forEach((tab) => {
    tab.setAttribute("aria-selected", String(tab === chosen));
    tab.tabIndex = tab === chosen ? 0 : -1;
    at(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
  });
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) show(tab);
  });
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const way = document.dir === "rtl" ? -step : step;
    const next = all[(all.indexOf(document.activeElement) + way + all.length) % all.length];
    next.focus();
    show(next);
  });
}

// The list of calls: what it is narrowed to stands in the address, so that a search can be sent to somebody.

import { Refused, complain, json, withKey } from "./api.js";
import { at, clock, h, icon, moment, ms, number, said } from "./dom.js";
import { STATUS, sentence } from "./reason.js";

const form = at("filters");
const fields = [...form.elements].filter((each) => each.name);
const ENOUGH = 25;
const PAGES = 20;

let cursor = "", shown = 0, asking = 0;

// Times are the visitor's own in the form, with zone in the address; seconds there are milliseconds.
const apart = (date) => new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

function fromAddress() {
  const asked = new URLSearchParams(location.search);
  for (const field of fields) {
    const value = asked.get(field.name) ?? "";
    if (field.type === "datetime-local") field.value = value && !Number.isNaN(Date.parse(value)) ? apart(new Date(value)) : "";
    else field.value = field.dataset.unit && value ? String(Number(value) / Number(field.dataset.unit)) : value;
  }
}

function unfold() {
  at("rest").open ||= fields.some((field) => field.value && at("rest").contains(field));
}

function wanted() {
  const asked = new URLSearchParams();
  for (const field of fields) {
    const value = field.value.trim();
    if (!value) continue;
    if (field.type === "datetime-local") asked.set(field.name, new Date(value).toISOString());
    else asked.set(field.name, field.dataset.unit ? String(Math.round(Number(value) * Number(field.dataset.unit))) : value);
  }
  return asked;
}

// One page of the API looks at so many calls; the list asks on until it has enough to show, or stops to say how far.
async function more() {
  const mine = (asking += 1);
  at("further").hidden = true;
  let found = 0;
  for (let pages = 0; pages < PAGES && found < ENOUGH; pages += 1) {
    at("count").textContent = shown ? `${shown} and looking…` : "Looking…";
    const asked = wanted();
    if (cursor) asked.set("cursor", cursor);
    const page = await json(`/api/v1/calls?${asked}`);
    if (mine !== asking) return;
    page.calls.forEach((call) => at("rows").append(row(call)));
    found += page.calls.length;
    shown += page.calls.length;
    cursor = page.cursor ?? "";
    if (!cursor) break;
  }
  at("count").textContent = `${shown}${cursor ? " so far" : ""}`;
  at("none").hidden = shown > 0;
  at("none").textContent = cursor ? "None so far; older calls were not looked at yet." : form.matches(":focus-within") || [...wanted()].length ? "No call fits these filters." : "There are no calls yet.";
  at("further").hidden = !cursor;
}

async function search() {
  cursor = "";
  shown = 0;
  at("rows").replaceChildren();
  at("problem").hidden = true;
  await more();
}

const WAYS = { outbound: "out", inbound: "in", web: "web" };

function row(call) {
  const [text, tone] = STATUS[call.status];
  const who = call.name ? [said(call.name), h("span", { class: "sub" }, number(call.phoneNumber))] : number(call.phoneNumber || "erased");
  const why = call.status === "COMPLETED" ? "" : sentence({ decisions: [], attempts: [1], ...call });
  return h("tr", {},
    h("td", {}, h("div", { class: "who2" }, h("span", { class: "dir", role: "img", "aria-label": call.direction }, icon(WAYS[call.direction])), h("a", { class: "lead", href: `/dashboard/calls/${encodeURIComponent(call.callTaskId)}` }, who))),
    h("td", { class: "num" }, moment(call.createdAt)),
    h("td", { class: "full" }, h("span", { class: "pill", "data-tone": tone }, text), call.disposition ? [" ", h("span", { class: "pill", "data-tone": "accent" }, said(call.disposition))] : null, why ? h("span", { class: "sub" }, why) : null),
    h("td", { class: "num r" }, call.durationMs ? clock(call.durationMs / 1000) : ""),
    h("td", { class: "num r", "data-slow": call.slowestMs > 1000 }, call.latencyMs ? [ms(call.latencyMs), h("span", { class: "sub" }, `up to ${ms(call.slowestMs)}`)] : ""));
}

async function tried(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    at("count").textContent = "";
    complain(error);
  }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  history.pushState(null, "", `/dashboard${[...wanted()].length ? `?${wanted()}` : ""}`);
  tried(search);
});
form.addEventListener("change", (event) => { if (event.target.tagName === "SELECT") form.requestSubmit(); });
at("clear").addEventListener("click", () => { form.reset(); fields.forEach((each) => { each.value = ""; }); form.requestSubmit(); });
at("more").addEventListener("click", () => tried(more));
addEventListener("popstate", () => { fromAddress(); unfold(); tried(search); });
addEventListener("keydown", (event) => {
  if (event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName)) { event.preventDefault(); at("find").focus(); }
});
fromAddress();
unfold();
withKey(search);

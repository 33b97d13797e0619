// The page of one call: what was said, heard and signalled, on one clock.

import { Refused, complain, file, json, save, withKey } from "./api.js";
import { cut, drawAxis, drawWave } from "./axis.js";
import { at, clock, h, icon, moment, ms, number, said, tabs } from "./dom.js";
import { drawLadder } from "./ladder.js";
import { STATUS, sentence } from "./reason.js";
import { PARTS, STATES, told } from "./story.js";
import { measure } from "./wave.js";

const id = decodeURIComponent(location.pathname.split("/").pop());
const path = `/api/v1/calls/${encodeURIComponent(id)}`;
const FINAL = new Set(["COMPLETED", "NO_ANSWER", "BUSY", "FAILED", "CANCELLED", "UNKNOWN"]);
const EVERY_MS = 2000;
const READABLE_S = 50;
const voice = at("voice"), axis = at("axis"), scroller = axis.parentElement;

let shown = "", story = null, wave = null, over = null, lines = [], words = [], position = 0, zoom = 0, peaks = null, frame = 0;

async function load() {
  const call = await json(path);
  const trace = await json(`${path}/trace`);
  at("problem").hidden = true;
  const news = JSON.stringify([call, trace]);
  if (news !== shown) show(call, trace); // what is chosen and focused stays while nothing happens
  shown = news;
  if (FINAL.has(call.status)) {
    hear(call, trace);
  } else {
    setTimeout(() => load().catch((error) => (error instanceof Refused ? complain(error) : Promise.reject(error))), EVERY_MS);
  }
}

function show(call, trace) {
  story = told(call, trace, peaks?.duration);
  head(call);
  at("timeline").hidden = !call.answeredAt; // there is no conversation to lay on it
  wave = drawAxis(axis, story, { seek, tell, tellTurn });
  over = h("div", { class: "over" }, h("div", { class: "hair", hidden: true }), h("div", { class: "head-line" }));
  axis.append(over);
  if (peaks) drawWave(wave, peaks);
  scale();
  words = [...axis.querySelectorAll("[data-t]")];
  transcript(call);
  drawLadder(trace, story, seek);
  tables(call);
  steer();
  const start = asked();
  seek(start ?? position);
  follow();
  if (story.turns.length) tellTurn(story.turns.find((turn) => turn.slow) ?? story.turns[0]);
  else tell("Nothing is chosen", "Choose a state, a turn or a message to read about it here.");
}

function head(call) {
  const name = call.promptVariables.name || call.sip.displayName, who = call.phoneNumber || "number erased or withheld";
  document.title = `${name || who}: call`;
  at("who").replaceChildren(...(name ? [said(name), " ", h("span", { class: "soft" }, number(who))] : [number(who)]));
  const [text, tone] = STATUS[call.status];
  const disposition = call.analysis?.disposition;
  at("pills").replaceChildren(h("span", { class: "pill", "data-tone": tone }, text), disposition ? h("span", { class: "pill", "data-tone": "accent" }, said(disposition)) : "");
  at("outcome").textContent = sentence(call);
  at("outcome").append(call.analysis?.summary ? h("span", { class: "sub" }, said(call.analysis.summary)) : "");
  if (call.error) at("outcome").append(h("span", { class: "error" }, " ", said(call.error)));
  at("batch").replaceChildren(...(call.batchId ? [h("span", { "aria-hidden": "true" }, "/ "), h("a", { href: `/dashboard?batchId=${encodeURIComponent(call.batchId)}` }, "Batch")] : []));
  at("hangup").hidden = FINAL.has(call.status);
  facts(call);
  at("look").hidden = !story.look.length;
  at("look").replaceChildren(h("span", { class: "soft" }, "Worth a look"), ...story.look.map((each) => h("button", { type: "button", "data-c": each.tone, onclick: () => moveTo(each) }, h("span", {}, h("b", {}, clock(each.at)), " ", said(each.text)))));
}

function moveTo(moment_) {
  seek(moment_.at);
  follow();
  const turn = story.turns.find((each) => each.number === moment_.turn);
  if (turn) tellTurn(turn);
}

function facts(call) {
  const talked = call.answeredAt && call.endedAt ? (Date.parse(call.endedAt) - Date.parse(call.answeredAt)) / 1000 : null;
  const rang = call.answeredAt && call.dialedAt ? (Date.parse(call.answeredAt) - Date.parse(call.dialedAt)) / 1000 : null;
  const totals = story.turns.map((turn) => turn.total).sort((a, b) => a - b);
  const mos = story.media.flat().map((each) => each.mos).filter((each) => each !== null);
  const middle = totals.length ? (totals[(totals.length - 1) >> 1] + totals[totals.length >> 1]) / 2 : null;
  const rows = [
    ["Direction", [call.direction, " ", call.attempts.at(-1) ? h("span", { class: "soft" }, "over ", said(call.attempts.at(-1).trunkId)) : null]],
    call.answeredAt ? ["Answered", [moment(call.answeredAt), rang === null ? null : h("span", { class: "soft" }, ` after ${rang.toFixed(1)} s`)]] : ["Created", [moment(call.createdAt)]],
    talked === null ? null : ["Talked", [clock(talked, 1)], "big"],
    middle === null ? null : ["Answers after, median", [ms(middle)], "big"],
    totals.length ? ["Slowest", [ms(totals.at(-1))], "big"] : null,
    mos.length ? ["MOS", [Math.min(...mos).toFixed(1)], "big"] : null,
    call.answeredAt ? ["Interruptions", [String(story.lines.filter((line) => line.interrupted).length)], "big"] : null,
    call.hangupCause ? ["Cause", [h("code", {}, call.hangupCause), call.sipStatus >= 300 ? h("span", { class: "soft" }, ` SIP ${call.sipStatus}`) : null]] : null,
    ["Agent", [h("code", { title: call.agentId }, call.agentId.slice(0, 8))]],
  ];
  at("facts").replaceChildren(...rows.filter(Boolean).map(([name, value, size]) => h("div", {}, h("dt", {}, name), h("dd", { class: size }, value))));
}

function transcript(call) {
  const latency = new Map(story.turns.map((turn) => [story.lines.find((line) => line.role === "agent" && line.from >= turn.heard - 0.01), turn]));
  lines = story.lines.map((line) => {
    const turn = latency.get(line);
    const node = h("li", { "data-who": line.role, onclick: () => { seek(line.from); follow(); } },
      h("a", { href: `#t=${line.from.toFixed(1)}` }, clock(line.from)), h("span", { class: "who" }, { agent: "Agent", colleague: "Colleague" }[line.role] ?? "Caller"),
      h("span", { class: "said" }, said(line.text), line.interrupted ? cut(line) : null), turn ? h("small", { class: "num", "data-slow": turn.slow }, ms(turn.total)) : null);
    return { from: line.from, node };
  });
  at("transcript").replaceChildren(...lines.map((each) => each.node));
  at("unsaid").hidden = lines.length > 0;
  const unsaid = call.answeredAt ? "Nothing was said, or what was said was erased or its time is over." : "Nobody answered, so nothing was said.";
  at("unsaid").textContent = FINAL.has(call.status) ? unsaid : "Nothing has been said yet.";
  const spoken = (role) => story.lines.filter((line) => line.role === role).reduce((sum, line) => sum + line.to - line.from, 0);
  const [caller, agent] = [spoken("caller"), spoken("agent")];
  at("share").textContent = caller + agent ? `${call.turns.length} turns · caller ${Math.round((100 * caller) / (caller + agent))} %, agent ${Math.round((100 * agent) / (caller + agent))} %` : "";
}

function tables(call) {
  at("decisions").replaceChildren(...story.decisions.map((each) => h("tr", {},
    h("td", { class: "num" }, each.at === undefined ? each.clock : h("a", { class: "lead", href: `#t=${each.at.toFixed(1)}` }, each.clock)),
    h("td", {}, said(each.name), each.code ? [" ", h("code", {}, each.code)] : null), h("td", { class: "soft" }, said(each.why)))));
  const answers = call.analysis?.answers ?? {};
  const rows = [...Object.entries(call.promptVariables).map(([name, value]) => [`promptVariables.${name}`, value]), ...Object.entries(call.metadata).map(([name, value]) => [`metadata.${name}`, value]),
    ...Object.entries(answers).map(([name, value]) => [`answers.${name}`, value]), ...Object.entries(call.analysis?.extracted ?? {}).map(([name, value]) => [`extracted.${name}`, value]), ...Object.entries(call.sip.headers).map(([name, value]) => [`sip.${name}`, value]), ["callTaskId", call.callTaskId], ["webhookId", call.webhookId]];
  at("data").replaceChildren(...rows.map(([name, value]) => h("tr", {}, h("td", {}, said(name)), h("td", {}, said(typeof value === "string" ? value : JSON.stringify(value))))));
}

async function hooks() {
  try {
    const { deliveries } = await json(`/api/v1/deliveries?callTaskId=${encodeURIComponent(id)}`);
    at("nohooks").hidden = deliveries.length > 0;
    at("nohooks").textContent = "No webhook subscribes to this call’s events.";
    at("hooktable").hidden = !deliveries.length;
    at("hooks").replaceChildren(...deliveries.map((each) => h("tr", {}, h("td", { class: "num soft" }, moment(each.createdAt)), h("td", {}, h("code", {}, each.type)), h("td", { class: "num" }, String(each.attempts)), h("td", {}, h("span", { class: "pill", "data-tone": each.state === "DELIVERED" ? "good" : each.state === "PENDING" ? "warn" : "bad" }, each.state)))));
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    at("nohooks").textContent = error.status === 403 ? "Deliveries are shown to keys with the scope admin." : error.message;
  }
}

// The recording ----------------------------------------------------------------------------------------------

async function hear(call, trace) {
  const veil = (text) => { at("veil").textContent = text; at("veil").hidden = !text; };
  if (!call.recordingUrl) return veil(call.answeredAt ? "This call has no recording." : "");
  veil("Fetching the recording…");
  try {
    const blob = await file(`${path}/recording`);
    peaks = await measure(blob);
    if (peaks) show(call, trace);
    voice.src = URL.createObjectURL(blob);
    at("play").disabled = at("save-recording").disabled = false;
    at("veil").hidden = true;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    veil(error.status === 404 ? "The recording is not there any more." : `The recording cannot be had: ${error.message}`);
  }
}

function play(on) {
  if (!voice.src) return;
  if (on) voice.play();
  else voice.pause();
}

function button() {
  at("play").replaceChildren(icon(voice.paused ? "play" : "pause", true), voice.paused ? "Play" : "Pause");
  cancelAnimationFrame(frame);
  const tick = () => { place(voice.currentTime); follow(); if (!voice.paused) frame = requestAnimationFrame(tick); };
  if (!voice.paused) frame = requestAnimationFrame(tick);
}

for (const event of ["play", "pause", "ended"]) voice.addEventListener(event, button);

// Where we are -----------------------------------------------------------------------------------------------

const stateAt = (t) => STATES[story.states.find((each) => t >= each.from && t < each.to)?.state] ?? "";

function about(t) {
  const here = story.media.flat().find((each) => t >= each.from && t < each.to);
  return [clock(t, 1), stateAt(t), here ? `loss ${here.loss.toFixed(1)} %, jitter ${here.jitter.toFixed(1)} ms` : ""].filter(Boolean).join(" · ");
}

function seek(t) {
  const there = Math.max(0, Math.min(story.whole, t));
  if (voice.src && Number.isFinite(voice.duration)) voice.currentTime = Math.min(there, voice.duration);
  place(there);
}

function place(t) {
  position = t;
  const part = (t / story.whole).toFixed(5);
  over.lastChild.style.setProperty("--p", part);
  at("now").textContent = clock(t, 1);
  at("length").textContent = `/ ${clock(story.whole, 1)}`;
  at("readout").textContent = about(t);
  wave.setAttribute("aria-valuenow", t.toFixed(1));
  wave.setAttribute("aria-valuetext", `${clock(t, 1)}, ${stateAt(t)}`);
  const word = words.findLast((each) => Number(each.dataset.t) <= t);
  words.forEach((each) => each.classList.toggle("now", each === word));
  const here = lines.findLast((each) => each.from <= t + 0.05);
  lines.forEach((each) => each.node.toggleAttribute("data-now", each === here));
}

function follow() { // keeps the playhead in sight where the axis is wider than the page
  const x = wave.offsetLeft + (wave.offsetWidth * position) / story.whole, from = scroller.scrollLeft, wide = scroller.clientWidth;
  if (axis.offsetWidth > wide + 1 && (x < from + 130 || x > from + wide - 40)) scroller.scrollLeft = x - wide * 0.4;
}

const KEYS = { ArrowRight: 1, ArrowLeft: -1, PageUp: 5, PageDown: -5, Home: -Infinity, End: Infinity };

function steer() {
  const pointed = (event) => { const box = wave.getBoundingClientRect(); return ((event.clientX - box.left) / box.width) * story.whole; };
  const hair = over.firstChild;
  wave.addEventListener("click", (event) => { seek(pointed(event)); play(true); });
  wave.addEventListener("keydown", (event) => {
    if (event.key in KEYS) { event.preventDefault(); seek(position + KEYS[event.key]); follow(); }
    if (event.key === " ") { event.preventDefault(); play(voice.paused); }
  });
  wave.addEventListener("pointermove", (event) => {
    const t = pointed(event);
    hair.hidden = t < 0 || t > story.whole;
    hair.style.setProperty("--p", (t / story.whole).toFixed(5));
    at("readout").textContent = about(Math.max(0, Math.min(story.whole, t)));
  });
  wave.addEventListener("pointerleave", () => { hair.hidden = true; at("readout").textContent = about(position); });
}

function tell(name, text) {
  at("inspect").replaceChildren(h("h3", {}, said(name)), h("span", { class: "soft" }, said(text)));
  press(0);
}

const press = (turn) => axis.querySelectorAll(".stack").forEach((each) => each.setAttribute("aria-pressed", String(Number(each.dataset.turn) === turn)));

function tellTurn(turn) {
  at("inspect").replaceChildren(h("h3", {}, `Turn ${turn.number} · answered after ${ms(turn.total)}`),
    h("div", { class: "split", "aria-hidden": "true" }, PARTS.map(([kind, , key]) => h("i", { "data-c": kind, vars: { f: Math.max(turn.latency[key], 0) } }))),
    h("p", { class: "key" }, PARTS.map(([kind, name, key]) => h("span", { "data-c": kind }, name, h("b", {}, ms(turn.latency[key]))))));
  press(turn.number);
}

function asked() {
  const found = /t=(\d+(?:\.\d+)?)/.exec(location.hash);
  return found ? Number(found[1]) : null;
}

// Buttons ----------------------------------------------------------------------------------------------------

async function tried(work) {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    complain(error);
  }
}

function written() {
  return story.lines.map((line) => `${clock(line.from, 1)}\t${line.role}\t${line.text}${line.interrupted ? ` [cut off${line.unheard ? `: ${line.unheard}` : ""}]` : ""}`).join("\n");
}

function keep(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

at("link").addEventListener("click", async () => {
  history.replaceState(null, "", `#t=${position.toFixed(1)}`);
  await navigator.clipboard?.writeText(location.href).catch(() => {});
  at("link").textContent = "Link is in the address bar";
});
at("save-recording").addEventListener("click", () => tried(() => save(`${path}/recording`, `${id}.wav`)));
at("save-pcap").addEventListener("click", () => tried(() => save(`${path}/trace.pcap`, `${id}.pcap`)));
at("save-json").addEventListener("click", () => tried(() => save(path, `${id}.json`)));
at("save-transcript").addEventListener("click", () => keep(written(), `${id}.txt`));
at("hangup").addEventListener("click", () => tried(async () => { await json(`${path}/hangup`, { method: "POST" }); }));
at("play").addEventListener("click", () => play(voice.paused));
// Unless somebody has zoomed, so much of a call is seen at once that its words can be read.
function scale() {
  axis.style.setProperty("--zoom", zoom || Math.max(1, Math.min(60, story.whole / READABLE_S)));
}

for (const [name, by] of [["in", 1.5], ["out", 1 / 1.5], ["fit", 0]]) {
  at(name).addEventListener("click", () => {
    const now = Number(axis.style.getPropertyValue("--zoom")) || 1;
    zoom = by ? Math.max(1, Math.min(60, now * by)) : 1;
    scale();
    follow();
  });
}
at("in").append(icon("more"));
at("out").append(icon("less"));
at("link").prepend(icon("link"));
for (const name of ["recording", "transcript", "pcap", "json"]) at(`save-${name}`).prepend(icon("down"));
tabs(at("tabs"));
at("t3").addEventListener("click", hooks);
at("t3").addEventListener("focus", hooks);
addEventListener("hashchange", () => { const t = asked(); if (t !== null && story) { seek(t); follow(); } });
button();
withKey(load);

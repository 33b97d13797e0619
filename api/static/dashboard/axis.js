// The lanes of a call over one axis. All share `--a` (start) and `--w` (length), parts of the whole call: zooming widens
// the axis and computes nothing again.

import { PARTS, STATES } from "./story.js";
import { clock, h, ms, s, said } from "./dom.js";
import { shape } from "./wave.js";

export function drawAxis(axis, story, actions) {
  const { whole } = story;
  const part = (seconds) => (Math.min(Math.max(seconds, 0), whole) / whole).toFixed(5);
  const span = (from, to) => ({ a: part(from), w: Math.max(0, part(to) - part(from)).toFixed(5) });
  const lane = (kind, name, note, ...items) => {
    const track = h("div", { class: "track" }, items);
    axis.append(h("div", { class: `lane ${kind}` }, h("div", { class: "name" }, name, note ? h("small", {}, note) : null), track));
    return track;
  };
  axis.replaceChildren();
  const step = [1, 5, 10, 30, 60, 300, 600].find((each) => whole / each <= 12) ?? 1800;
  lane("ruler", "", "", Array.from({ length: Math.floor(whole / step) + 1 }, (_, i) => h("span", { class: "at", vars: span(i * step, i * step) }, clock(i * step))));
  const wave = waveLane(lane, story, span);
  const people = story.lines.some((line) => line.role === "colleague") ? ["colleague"] : [];
  for (const role of ["caller", "agent", ...people]) wordsLane(lane, story, role, span);
  if (story.states.length) statesLane(lane, story, span, actions);
  if (story.turns.length) latencyLane(lane, story, part, actions);
  momentsLane(lane, story, span, actions);
  story.media.forEach((leg, place) => mediaLane(lane, story, leg, place, span));
  return wave;
}

function waveLane(lane, story, span) {
  const track = lane("wave", [h("span", { "data-who": "caller" }, "Caller"), h("span", { "data-who": "agent" }, "Agent")], "",
    story.silences.map((each) => h("div", { class: "gap at", vars: span(each.from, each.to) })),
    story.turns.filter((turn) => turn.slow).map((turn) => h("div", { class: "gap at", vars: span(turn.from, turn.heard) })),
    h("p", { class: "veil", id: "veil" }));
  const settings = { role: "slider", tabindex: 0, "aria-label": "Position in the recording", "aria-valuemin": 0, "aria-valuemax": story.whole.toFixed(1), "aria-valuenow": 0 };
  Object.entries(settings).forEach(([name, value]) => track.setAttribute(name, value));
  return track;
}

export function drawWave(track, peaks) {
  track.querySelector("svg")?.remove();
  track.append(s("svg", { viewBox: "0 0 1000 100", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("path", { class: "up", d: shape(peaks.caller, 1) }), s("path", { class: "down", d: shape(peaks.agent, -1) }),
    s("line", { x1: 0, x2: 1000, y1: 50, y2: 50, "vector-effect": "non-scaling-stroke" })));
}

const WHO = { caller: "Caller", agent: "Agent", colleague: "Colleague" };

function wordsLane(lane, story, role, span) {
  const mine = story.lines.filter((line) => line.role === role);
  const items = mine.map((line, place) => {
    const room = mine[place + 1] ? mine[place + 1].from - 0.05 : story.whole;
    const words = line.words.length ? line.words.map((word) => [h("span", { "data-t": word.startMs / 1000 }, word.text), " "]) : line.text;
    return h("div", { class: "at", "data-who": role, title: line.text, vars: span(line.from, Math.min(room, Math.max(line.to, line.from) + 1.6)) }, said(words), line.interrupted ? cut(line) : null);
  });
  lane("words", `${WHO[role]} said`, "", items);
}

// What an agent would have said, had the caller not broken in.
export const cut = (line) => h("span", { class: "cut", title: "The caller broke in here; what follows was not heard" }, " ✂ ", line.unheard ? h("s", {}, said(line.unheard)) : "cut off");

function statesLane(lane, story, span, { seek, tell }) {
  lane("states", "Turn state", "", story.states.map((each) => {
    const name = STATES[each.state], narrow = (each.to - each.from) * 22 < name.length * 6.2 + 12;
    const about = `${clock(each.from, 1)} to ${clock(each.to, 1)}${each.why ? `. ${each.why}` : ""}`;
    return h("button", { class: "at", type: "button", "data-s": each.state, "data-narrow": narrow, vars: span(each.from, each.to), title: `${name}: ${about}`, "aria-label": `${name}, ${about}`, onclick: () => { seek(each.from); tell(name, about); } }, name);
  }));
}

function latencyLane(lane, story, part, { seek, tellTurn }) {
  const top = Math.max(1200, ...story.turns.map((turn) => turn.total));
  lane("lat", "Answer after", "last sound to first",
    h("div", { class: "mark", vars: { y: ((1000 / top) * 76).toFixed(2) } }, h("span", {}, "1 s")),
    story.turns.map((turn) => h("button", {
      class: "stack", type: "button", "aria-pressed": "false", "data-slow": turn.slow, "data-turn": turn.number, vars: { a: part(turn.from) },
      "aria-label": `Turn ${turn.number}, ${ms(turn.total)}: ${PARTS.map(([, name, key]) => `${name} ${ms(turn.latency[key])}`).join(", ")}`,
      onclick: () => { seek(turn.from); tellTurn(turn); },
    }, PARTS.map(([kind, , key]) => h("i", { "data-c": kind, vars: { h: ((turn.latency[key] / top) * 73).toFixed(2) } })), h("b", {}, turn.slow ? `${(turn.total / 1000).toFixed(2)} s` : String(Math.round(turn.total))))));
}

function momentsLane(lane, story, span, { seek, tell }) {
  const lanes = [
    ["Silences", "over 2 s, the agent's turn", story.silences.map((each) => ({ from: each.from, to: each.to, tone: "warn", name: `${(each.to - each.from).toFixed(1)} s`, text: `Silence, waiting for ${each.cause}` }))],
    ["Keys", "", story.keys.map((each) => ({ from: each.at, to: each.at, tone: "key", name: `⌨ ${each.text}`, text: `Keys: ${each.text}` }))],
    ["Faults", "", together(story.faults, story.whole / 30).map((each) => ({ from: each[0].at, to: each[0].at, tone: "bad", name: each.length > 1 ? `${each.length} faults` : each[0].role, text: each.map((one) => `${one.role}: ${one.message}`).join("; ") }))],
  ];
  for (const [name, note, items] of lanes) {
    if (items.length) lane("still", name, note, items.map((each) => h("button", {
      class: "at", type: "button", "data-tone": each.tone, vars: span(each.from, each.to), title: each.text, "aria-label": `${each.name}, at ${clock(each.from, 1)}: ${each.text}`,
      onclick: () => { seek(each.from); tell(clock(each.from, 1), each.text); },
    }, said(each.name))));
  }
}

// What happened so close together that it would be written over itself.
function together(moments, near) {
  const found = [];
  for (const each of moments) {
    if (found.length && each.at - found.at(-1)[0].at < near) found.at(-1).push(each);
    else found.push([each]);
  }
  return found;
}

function mediaLane(lane, story, leg, place, span) {
  if (!leg.length) return;
  const worst = leg.reduce((a, b) => (b.loss > a.loss ? b : a)), mos = leg.map((each) => each.mos).filter((each) => each !== null);
  const x = (t) => ((t / story.whole) * 1000).toFixed(1), top = Math.max(20, ...leg.map((each) => each.jitter));
  const label = `Loss up to ${worst.loss.toFixed(1)} %, jitter up to ${Math.max(...leg.map((each) => each.jitter)).toFixed(1)} ms${mos.length ? `, MOS down to ${Math.min(...mos).toFixed(1)}` : ""}`;
  lane("rtp", place ? `Telephone ${place + 1}` : "From the carrier", "loss, jitter, MOS",
    s("svg", { viewBox: "0 0 1000 48", preserveAspectRatio: "none", role: "img", "aria-label": label },
      leg.filter((each) => each.loss > 0).map((each) => s("rect", { class: "l", x: x(each.from), width: Math.max(1, x(each.to) - x(each.from) - 1), y: 48 - Math.min(46, each.loss * 6), height: Math.min(46, each.loss * 6) })),
      s("path", { class: "j", d: `M${leg.map((each) => `${x((each.from + each.to) / 2)} ${(46 - (each.jitter / top) * 34).toFixed(1)}`).join("L")}` })),
    h("span", { class: "at note", vars: span(0, story.whole), "data-bad": worst.loss >= 1 }, label));
}

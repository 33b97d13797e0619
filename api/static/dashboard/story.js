// What the API knows of a call, laid on one clock: seconds of the recording, which begins when the conversation does.

import { role, rule, waitedFor } from "./reason.js";
import { clock, moment, ms } from "./dom.js";

export const PARTS = [["wait", "silence waited for", "endpointMs"], ["stt", "recogniser", "sttMs"], ["agent", "agent", "agentMs"], ["voice", "voice", "ttsMs"], ["net", "network", "serverMs"]];
export const STATES = { speaking: "Speaking", hearing: "Hearing", listening: "Listening", pause: "End of turn?", thinking: "Thinking", overlap: "Both speak" };
const SLOW_MS = 1000;

export function told(call, trace, recorded) {
  const lines = call.transcript.map((line) => ({ ...line, from: line.startMs / 1000, to: line.endMs / 1000 }));
  const began = Date.parse(call.answeredAt ?? call.ringingAt ?? call.dialedAt ?? call.createdAt);
  const ended = call.answeredAt ? (Date.parse(call.endedAt ?? new Date().toISOString()) - began) / 1000 : 0;
  const last = Math.max(0, ...lines.map((line) => line.to), ...call.turns.map((turn) => turn.endMs / 1000));
  const whole = Math.max(recorded || Math.max(ended, last), 1);
  const turns = answers(call.turns, lines);
  const media = trace.legs.map((leg) => intervals(leg.media, began, whole));
  const one = { call, lines, whole, turns, began, media, at: (iso) => (Date.parse(iso) - began) / 1000 };
  return { ...one, states: states(one), silences: silences(one), faults: faults(call), keys: keys(call), look: look(one), decisions: decisions(one) };
}

// The moment at which each turn's answer was heard: the first words of the agent's after the caller's.
function answers(turns, lines) {
  return turns.filter((turn) => turn.latency).map((turn) => {
    const caller = lines.filter((line) => line.role === "caller" && line.startMs < turn.endMs && line.endMs > turn.startMs - 200).at(-1);
    const after = caller ? caller.endMs - 400 : turn.startMs;
    const answer = lines.find((line) => line.role === "agent" && line.startMs >= after);
    const total = turn.latency.voiceToVoiceMs;
    const heard = answer ? answer.startMs : (caller?.endMs ?? turn.startMs) + total;
    return { number: turn.turn, total, heard: heard / 1000, from: Math.max(0, (heard - total) / 1000), latency: turn.latency, slow: total > SLOW_MS };
  });
}

function states({ lines, turns, whole, call }) {
  const spoken = lines.map((line) => ({ from: line.from, to: line.to, state: line.role === "agent" ? "speaking" : "hearing", why: line.interrupted ? "The caller broke in" : "" }));
  for (const turn of turns) {
    const waited = turn.latency.endpointMs / 1000;
    spoken.push({ from: turn.from, to: turn.from + waited, state: "pause", why: `Waited ${ms(turn.latency.endpointMs)} to be sure that the caller was done` });
    spoken.push({ from: turn.from + waited, to: turn.heard, state: "thinking", why: `Answer prepared in ${ms(turn.total - turn.latency.endpointMs)}` });
  }
  const edges = [...new Set([0, whole, ...spoken.flatMap((each) => [each.from, each.to])])].filter((t) => t >= 0 && t <= whole).sort((a, b) => a - b);
  const found = [];
  for (let i = 0; i + 1 < edges.length; i += 1) {
    const middle = (edges[i] + edges[i + 1]) / 2;
    const here = spoken.filter((each) => each.from <= middle && each.to > middle);
    const names = new Set(here.map((each) => each.state));
    const state = names.has("speaking") && names.has("hearing") ? "overlap" : ["speaking", "thinking", "pause", "hearing"].find((name) => names.has(name)) ?? "listening";
    const why = here.find((each) => each.state === state)?.why ?? "";
    if (found.at(-1)?.state === state) found.at(-1).to = edges[i + 1];
    else found.push({ state, why, from: edges[i], to: edges[i + 1] });
  }
  return call.answeredAt ? found.filter((each) => each.to - each.from > 0.02) : [];
}

function silences({ call }) {
  return call.turns.flatMap((turn) => turn.silences).map((each) => ({ from: each.startMs / 1000, to: (each.startMs + each.ms) / 1000, cause: waitedFor(each.cause) }));
}

const faults = (call) => (call.analysis?.faults ?? []).map((each) => ({ at: each.atMs / 1000, role: role(String(each.role)), message: String(each.message) }));
const keys = (call) => call.turns.filter((turn) => turn.keyed).map((turn) => ({ at: turn.startMs / 1000, text: turn.keyed }));

// Counters become what happened between two samples.
function intervals(samples, began, whole) {
  let before = { at: 0, lost: 0, packetsReceived: 0 };
  return samples.map((each) => {
    const at = Math.min(Math.max((Date.parse(each.at) - began) / 1000, 0), whole);
    const lost = each.lost - before.lost, came = each.packetsReceived - before.packetsReceived;
    const found = { from: before.at, to: at, loss: lost + came > 0 ? Math.max(0, (100 * lost) / (lost + came)) : 0, jitter: each.jitterMs, mos: each.mos, remoteLoss: 100 * each.remoteFractionLost, rtt: each.rttMs };
    before = { at, lost: each.lost, packetsReceived: each.packetsReceived };
    return found;
  }).filter((each) => each.to > each.from);
}

// At most three moments, the worst of each kind first.
function look({ turns, lines, media, call }) {
  const found = faults(call).slice(0, 1).map((each) => ({ at: each.at, tone: "bad", text: `${each.role} failed: ${each.message}` }));
  const slowest = turns.filter((turn) => turn.slow).sort((a, b) => b.total - a.total)[0];
  if (slowest) {
    const most = PARTS.map(([, name, key]) => [name, slowest.latency[key]]).sort((a, b) => b[1] - a[1])[0];
    found.push({ at: slowest.from, tone: "bad", turn: slowest.number, text: `answered after ${ms(slowest.total)}, most of it ${most[0]}` });
  }
  const lossy = media.flat().filter((each) => each.loss >= 1).sort((a, b) => b.loss - a.loss)[0];
  if (lossy) found.push({ at: lossy.from, tone: "warn", text: `${lossy.loss.toFixed(1)} % of the packets lost in ${(lossy.to - lossy.from).toFixed(0)} s` });
  const cut = lines.find((line) => line.interrupted);
  if (cut) found.push({ at: cut.to, tone: "agent", text: "the caller broke in, and the agent stopped" });
  return found.slice(0, 3);
}

function decisions(one) {
  const dialling = one.call.decisions.map((each) => ({ when: moment(each.at), name: rule(each.rule), code: each.rule, why: `${each.reason}${each.times > 1 ? ` (${each.times} times)` : ""}${each.until ? `; until ${moment(each.until)}` : ""}` }));
  const attempts = one.call.attempts.map((each) => ({ at: one.at(each.startedAt), name: `Attempt ${each.number} over ${each.trunkId}`, why: [each.status, each.hangupCause, each.sipStatus && `SIP ${each.sipStatus}`].filter(Boolean).join(", ") }));
  const taken = one.turns.map((turn) => ({ at: turn.from + turn.latency.endpointMs / 1000, name: `Turn ${turn.number} taken for the end of the caller's words`, why: `${ms(turn.latency.endpointMs)} of silence waited for, answer heard ${ms(turn.total)} after the last sound` }));
  const cut = one.lines.filter((line) => line.interrupted).map((line) => ({ at: line.to, name: "Agent stopped", why: "The caller broke in" }));
  const tools = (one.call.analysis?.toolCalls ?? []).map((each) => ({ at: each.startMs / 1000, name: `Tool ${each.tool} ${each.failed ? "failed" : "answered"} after ${ms(each.durationMs)}`, code: JSON.stringify(each.arguments), why: String(each.result) }));
  const still = one.silences?.map((each) => ({ at: each.from, name: "Silence", why: each.cause })) ?? [];
  return [...dialling, ...[...attempts, ...taken, ...cut, ...tools, ...still].sort((a, b) => a.at - b.at)].map((each) => ({ ...each, clock: each.at === undefined ? each.when : clock(each.at, 1) }));
}

// The page: one button, what is heard and said, and what is wrong when something is.

import { Meter } from "./meter.js";
import { CallRefused, WhipCall, ask, refusal } from "./whip.js";
import { INSECURE, LOST, NoMicrophone, ending, inWords } from "./failures.js";

const at = (id) => document.getElementById(id);
const agent = decodeURIComponent(location.pathname.split("/").pop());
const STATES = { connecting: "Connecting…", initializing: "Connecting…", listening: "Listening", thinking: "Thinking…", speaking: "Speaking" };

// The call that is being set up or goes on. `finish` ends it at whatever step it is; what that step still brings is
// given back by `begin`.
let current = null;
let token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
const latencies = [];

function show(state) {
  at("orb").dataset.state = state;
  at("state").textContent = STATES[state] ?? state;
}

function complain(text) {
  at("problem").textContent = text;
  at("problem").hidden = !text;
}

// A token for a company that lets anybody talk. Its room is given back when nobody comes to it.
async function invited() {
  const answer = await ask(session(), { method: "POST" });
  if (!answer.ok) throw await refusal(answer);
  const { participantToken, agentName } = await answer.json();
  if (agentName) document.title = at("agent").textContent = agentName;
  return participantToken;
}

function session() {
  return `/talk/${encodeURIComponent(agent)}/session`;
}

function giveBack(invitation) {
  const headers = { Authorization: `Bearer ${invitation}` };
  fetch(session(), { method: "DELETE", headers, keepalive: true }).catch(() => {});
}

function release(stream) {
  stream?.getTracks().forEach((track) => track.stop());
}

function microphone() {
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
  return navigator.mediaDevices.getUserMedia({ audio }).catch((cause) => {
    throw new NoMicrophone(cause.message, { cause });
  });
}

async function begin() {
  if (current) return;
  complain("");
  if (!navigator.mediaDevices) return complain(INSECURE);
  const ours = (current = { stream: null, call: null, meter: null, invitation: "" });
  live(true);
  show("connecting");
  at("transcript").replaceChildren();
  latencies.length = 0;
  at("latency").textContent = "";
  try {
    await connect(ours);
  } catch (error) {
    if (ours === current) failed(error);
  }
  if (ours === current) return;
  release(ours.stream);
  if (ours.invitation) giveBack(ours.invitation);
}

// Returns early where it was hung up meanwhile.
async function connect(ours) {
  ours.stream = await microphone();
  if (ours !== current) return;
  if (!token) ours.invitation = await invited();
  if (ours !== current) return;
  ours.call = new WhipCall(ours.stream);
  listen(ours);
  await ours.call.start("/rtc/whip", token || ours.invitation);
  ours.meter = new Meter(ours.stream, (level) => {
    at("level").value = level;
    at("orb").style.setProperty("--level", level);
  });
  at("microphone").hidden = at("mute").hidden = false;
}

function failed(error) {
  finish("Ready");
  complain(inWords(error));
  if (error instanceof CallRefused && error.status === 401) askToken();
}

function listen(ours) {
  const on = (kind, react) => ours.call.addEventListener(kind, ({ detail }) => ours === current && react(detail));
  on("track", ({ stream: voice }) => { at("voice").srcObject = voice; });
  on("connected", () => at("orb").dataset.state === "connecting" && show("listening"));
  on("state", ({ state }) => show(state));
  on("words", write);
  on("turn", ({ latencyMs }) => timed(latencyMs));
  on("ended", ({ reason }) => finish(ending(reason)));
  on("failed", () => { finish("Ready"); complain(LOST); });
}

// One line per segment; a later piece of the same segment replaces the earlier one.
function write({ speaker, segment, text, final, interrupted }) {
  let line = at("transcript").querySelector(`[data-segment="${CSS.escape(segment)}"]`);
  if (!line) {
    line = document.createElement("li");
    line.dataset.segment = segment;
    line.dataset.speaker = speaker;
    at("transcript").append(line);
  }
  line.dataset.final = final;
  line.ariaBusy = !final; // read aloud once, when it is whole
  if (final && !text) return line.remove(); // nobody heard it
  const who = document.createElement("small");
  who.textContent = speaker === "agent" ? at("agent").textContent : "You";
  line.replaceChildren(who, document.createTextNode(interrupted ? `${text} —` : text));
  at("transcript").scrollTop = at("transcript").scrollHeight;
}

function timed(latencyMs) {
  latencies.push(latencyMs);
  const [last] = [...at("transcript").querySelectorAll('[data-speaker="agent"] small')].slice(-1);
  if (last && !last.textContent.includes(" ms")) last.textContent += ` · ${Math.round(latencyMs)} ms`;
  const mean = latencies.reduce((sum, value) => sum + value, 0) / latencies.length;
  at("latency").textContent = `answers after ${Math.round(mean)} ms on average`;
}

function live(on) {
  at("talk").textContent = on ? "Hang up" : "Start talking";
  at("talk").dataset.live = on;
}

function finish(text) {
  const { stream, call, meter } = current;
  current = null;
  call?.stop();
  meter?.stop();
  release(stream);
  live(false);
  mute(false);
  at("microphone").hidden = at("mute").hidden = true;
  show("idle");
  at("state").textContent = text;
}

function mute(on) {
  current?.stream.getAudioTracks().forEach((track) => { track.enabled = !on; });
  at("mute").setAttribute("aria-pressed", on);
  at("mute").textContent = on ? "Unmute" : "Mute";
}

function askToken() {
  token = "";
  at("ask").hidden = false;
  at("token").focus();
}

function hangUp() {
  if (current) finish(current.call ? ending("client_initiated") : "Ready");
}

at("talk").addEventListener("click", () => (at("talk").dataset.live === "true" ? hangUp() : begin()));
at("mute").addEventListener("click", () => mute(at("mute").getAttribute("aria-pressed") !== "true"));
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("ask").hidden = true;
  begin();
});
addEventListener("keydown", (event) => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") hangUp();
  if (event.key.toLowerCase() === "m" && !at("mute").hidden) at("mute").click();
});
addEventListener("pagehide", hangUp);

// The page: one button, what is heard and said, and what is wrong when something is.

import { Meter } from "./meter.js";
import { CallRefused, WhipCall, refusal } from "./whip.js";
import { INSECURE, LOST, ending, inWords } from "./failures.js";

const at = (id) => document.getElementById(id);
const agent = decodeURIComponent(location.pathname.split("/").pop());
const STATES = { connecting: "Connecting…", initializing: "Connecting…", listening: "Listening", thinking: "Thinking…", speaking: "Speaking" };

let call = null;
let stream = null;
let meter = null;
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

// A token from the link, or typed in, or, for a company that lets anybody talk, from the server.
async function ticket() {
  if (token) return token;
  const answer = await fetch(`/talk/${encodeURIComponent(agent)}/session`, { method: "POST" });
  if (!answer.ok) throw await refusal(answer);
  const { participantToken, agentName } = await answer.json();
  if (agentName) document.title = at("agent").textContent = agentName;
  return participantToken;
}

async function begin() {
  complain("");
  if (!navigator.mediaDevices) return complain(INSECURE);
  live(true);
  show("connecting");
  at("transcript").replaceChildren();
  latencies.length = 0;
  at("latency").textContent = "";
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
    const ours = await ticket();
    call = new WhipCall(stream);
    listen(call);
    await call.start("/rtc/whip", ours);
    meter = new Meter(stream, (level) => {
      at("level").value = level;
      at("orb").style.setProperty("--level", level);
    });
    at("microphone").hidden = at("mute").hidden = false;
  } catch (error) {
    finish("Ready");
    complain(inWords(error));
    if (error instanceof CallRefused && error.status === 401) ask();
  }
}

function listen(current) {
  const on = (kind, react) => current.addEventListener(kind, ({ detail }) => current === call && react(detail));
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
  meter?.stop();
  stream?.getTracks().forEach((track) => track.stop());
  call = stream = meter = null;
  live(false);
  mute(false);
  at("microphone").hidden = at("mute").hidden = true;
  show("idle");
  at("state").textContent = text;
}

function mute(on) {
  stream?.getAudioTracks().forEach((track) => { track.enabled = !on; });
  at("mute").setAttribute("aria-pressed", on);
  at("mute").textContent = on ? "Unmute" : "Mute";
}

function ask() {
  token = "";
  at("ask").hidden = false;
  at("token").focus();
}

function hangUp() {
  if (call) call.stop();
  else if (stream) finish("Ready");
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

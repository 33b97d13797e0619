// The page: one button, what is heard and said, and what is wrong when something is.

import { Conversation } from "./conversation.js";
import { ending, inWords } from "./failures.js";
import { openMicrophone } from "./microphone.js";
import { Sound } from "./sound.js";
import { Texts } from "./texts.js";
import { Transcript } from "./transcript.js";

const at = (id) => document.getElementById(id);
const texts = new Texts([new URLSearchParams(location.search).get("lang"), ...navigator.languages]);
const agent = decodeURIComponent(location.pathname.split("/").pop());
const token = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
const conversation = new Conversation(location.origin, agent, token);
const transcript = new Transcript(at("transcript"), texts);
const sound = new Sound({
  microphones: at("microphones"), speakers: at("speakers"), voice: at("voice"), usual: texts.of("usual"), show: level,
});
const latencies = [];
let state = "idle";

document.documentElement.lang = texts.language;
document.documentElement.dir = texts.direction;
document.title = texts.of("title");
for (const each of document.querySelectorAll("[data-text]")) each.textContent = texts.of(each.dataset.text);

function show() {
  at("orb").dataset.state = state;
  if (state === "idle") return;
  at("state").textContent = texts.doing(state, conversation.muted && !at("text-only").checked);
}

function complain(text) {
  at("problem").textContent = text;
  at("problem").hidden = !text;
}

// How loud the microphone is; null where none is open.
function level(value) {
  at("microphone").hidden = value === null;
  at("level").value = value ?? 0;
  at("orb").style.setProperty("--level", value ?? 0);
}

function begin() {
  complain("");
  transcript.clear();
  at("download").hidden = true;
  latencies.length = 0;
  at("latency").textContent = "";
  const silent = at("text-only").checked;
  at("voice").muted = silent;
  conversation.mute(at("push-to-talk").checked);
  if (silent) sound.stop();
  at("sound").open = false; // what is said has its place, on telephones
  conversation.begin(async () => (silent ? null : sound.open()));
  if (!at("hold").hidden) at("hold").focus(); // else the space bar would hang up
}

function controls() {
  const { live } = conversation;
  const speaks = live && !at("text-only").checked;
  at("talk").textContent = texts.of(live ? "hangUp" : "start");
  at("talk").dataset.live = live;
  at("text-only").disabled = live;
  at("mute").hidden = !speaks || at("push-to-talk").checked || state === "connecting";
  at("hold").hidden = !speaks || !at("push-to-talk").checked;
  at("write").hidden = !live || state === "connecting";
}

function over(text) {
  sound.stop();
  controls();
  at("state").textContent = text;
}

function failed(error) {
  over(texts.of("ready"));
  complain(inWords(error, texts));
  if (error.status === 401) askToken();
}

function timed(latencyMs) {
  latencies.push(latencyMs);
  transcript.time(`${Math.round(latencyMs)} ms`);
  const mean = latencies.reduce((sum, value) => sum + value, 0) / latencies.length;
  at("latency").textContent = texts.of("latency", { ms: Math.round(mean) });
}

function askToken() {
  conversation.token = "";
  at("ask").hidden = false;
  at("token").focus();
}

// Only while a push-to-talk button or key is down.
function hold(on) {
  if (conversation.live && at("push-to-talk").checked) conversation.mute(!on);
}

// Does what takes a microphone, and says why there is none.
async function taking(step) {
  complain("");
  await step().catch((error) => complain(inWords(error, texts)));
}

function check() {
  if (conversation.live) return;
  if (!at("sound").open) return sound.stop();
  taking(() => sound.check());
}

function chooseMicrophone() {
  if (!conversation.live) return check();
  taking(async () => conversation.replace(await openMicrophone(at("microphones").value)));
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([transcript.text], { type: "text/plain;charset=utf-8" }));
  link.download = `${at("agent").textContent}.txt`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); // once the browser has read it
}

const on = (kind, react) => conversation.addEventListener(kind, ({ detail }) => react(detail));
on("state", (told) => {
  state = told.state;
  controls();
  show();
});
on("muted", ({ muted }) => {
  at("mute").setAttribute("aria-pressed", muted);
  at("mute").textContent = texts.of(muted ? "unmute" : "mute");
  at("hold").setAttribute("aria-pressed", !muted);
  show();
});
on("agent", ({ name }) => {
  document.title = at("agent").textContent = name;
  transcript.call(name);
});
on("microphone", ({ stream }) => sound.follow(stream));
on("unplugged", ({ error }) => complain(inWords(error, texts)));
on("voice", ({ stream }) => { at("voice").srcObject = stream; });
on("words", (words) => {
  transcript.write(words);
  at("download").hidden = !transcript.text;
});
on("turn", ({ latencyMs }) => timed(latencyMs));
on("over", ({ reason }) => over(reason ? ending(reason, texts) : texts.of("ready")));
on("failed", ({ error }) => failed(error));

at("talk").addEventListener("click", () => (conversation.live ? conversation.hangUp() : begin()));
at("mute").addEventListener("click", () => conversation.mute(!conversation.muted));
at("sound").addEventListener("toggle", check);
at("microphones").addEventListener("change", chooseMicrophone);
at("push-to-talk").addEventListener("change", () => {
  if (conversation.live) conversation.mute(at("push-to-talk").checked);
  controls();
});
at("download").addEventListener("click", download);
at("hold").addEventListener("pointerdown", ({ pointerId }) => {
  at("hold").setPointerCapture(pointerId);
  hold(true);
});
for (const kind of ["pointerup", "pointercancel", "lostpointercapture", "blur"]) {
  at("hold").addEventListener(kind, () => hold(false));
}
// Of a key, or of assistive technology, which hold nothing: once for talking, once for no more.
at("hold").addEventListener("click", ({ detail }) => detail === 0 && hold(conversation.muted));
at("hold").addEventListener("keydown", (event) => event.repeat && event.preventDefault());
at("write").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = at("text").value.trim();
  if (text && conversation.write(text)) at("text").value = "";
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  conversation.token = at("token").value.trim();
  at("ask").hidden = true;
  begin();
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.target.matches("input:not([type=checkbox]), select")) return;
  if (event.key === "Escape") conversation.hangUp();
  if (event.key.toLowerCase() === "m" && !at("mute").hidden) at("mute").click();
  if (event.key === " " && !at("hold").hidden && (event.target === at("hold") || !event.target.matches("button, summary, input"))) {
    event.preventDefault(); // else the page scrolls
    hold(true);
  }
});
addEventListener("keyup", (event) => {
  if (event.key !== " ") return;
  if (event.target === at("hold")) event.preventDefault(); // Firefox would click it
  hold(false);
});
// The key or the button may come up where this page does not see it.
addEventListener("blur", () => hold(false));
document.addEventListener("visibilitychange", () => hold(false));
addEventListener("pagehide", () => conversation.hangUp());

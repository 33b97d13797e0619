// The widget: a button on somebody's page, and the panel that it opens, in a shadow tree. It brings no inline style and
// no inline script, so that a page's Content-Security-Policy only has to name the media server.

import { Conversation } from "./conversation.js";
import { ending, inWords } from "./failures.js";
import { Meter } from "./meter.js";
import { openMicrophone } from "./microphone.js";
import { Texts } from "./texts.js";
import { Transcript } from "./transcript.js";

const SHEETS = ["parts.css", "widget.css"];

function element(name, { data = {}, ...attributes } = {}, ...children) {
  const made = document.createElement(name);
  Object.assign(made.dataset, data);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

async function sheet(name) {
  const answer = await fetch(new URL(name, import.meta.url));
  return new CSSStyleSheet().replace(await answer.text());
}

export class Panel {
  #texts;
  #conversation;
  #transcript;
  #meter = null;
  #state = "idle";
  #parts;
  // The page may take the widget away, and with it what hangs up.
  #there = new MutationObserver(() => this.#parts.panel.isConnected || this.#conversation.hangUp());

  // `settings`: the data-… attributes of the script.
  static async put(server, settings) {
    const sheets = await Promise.all(SHEETS.map(sheet));
    return new Panel(server, settings, sheets);
  }

  constructor(server, { agent, label, lang, side }, sheets) {
    const texts = (this.#texts = new Texts([lang, document.documentElement.lang, ...navigator.languages]));
    this.#conversation = new Conversation(server, agent);
    const host = element("div", { lang: texts.language, dir: texts.direction, data: { side: side === "start" ? "start" : "end" } });
    const root = host.attachShadow({ mode: "open" });
    root.adoptedStyleSheets = sheets;
    this.#parts = this.#build(label || texts.of("start"));
    this.#transcript = new Transcript(this.#parts.said, texts);
    root.append(this.#parts.panel, this.#parts.opener, this.#parts.voice);
    this.#follow();
    this.#react(root);
    this.#controls();
    document.body.append(host);
  }

  #build(label) {
    const of = (key) => this.#texts.of(key);
    const button = (name, key) => element("button", { type: "button", class: name, "aria-label": of(key), title: of(key) });
    const parts = {
      opener: element("button", { type: "button", class: "opener", "aria-haspopup": "dialog" }, label),
      title: element("h2", { id: "title" }, of("title")),
      close: button("close", "close"),
      orb: element("div", { class: "orb", "aria-hidden": true, data: { state: "idle" } },
        element("span", { class: "ring" }), element("span", { class: "core" })),
      state: element("p", { class: "state", role: "status" }, of("ready")),
      problem: element("p", { class: "problem", role: "alert", hidden: "" }),
      said: element("ol", { role: "log", "aria-live": "polite", "aria-label": of("conversation"), tabindex: 0 }),
      talk: element("button", { type: "button", class: "main" }),
      mute: element("button", { type: "button", "aria-pressed": false }, of("mute")),
      voice: element("audio", { autoplay: "" }),
    };
    const controls = element("div", { class: "controls" }, parts.talk, parts.mute);
    const { title, close, orb, state, problem, said } = parts;
    const head = element("header", {}, title, close);
    const body = [head, orb, state, problem, said, controls];
    parts.panel = element("section", { role: "dialog", "aria-labelledby": "title", hidden: "" }, ...body);
    return parts;
  }

  #follow() {
    const on = (kind, react) => this.#conversation.addEventListener(kind, ({ detail }) => react(detail));
    const { title, mute, orb, voice } = this.#parts;
    on("state", ({ state }) => this.#show(state));
    on("muted", ({ muted }) => {
      mute.setAttribute("aria-pressed", muted);
      mute.textContent = this.#texts.of(muted ? "unmute" : "mute");
      this.#show(this.#state);
    });
    on("agent", ({ name }) => {
      title.textContent = name;
      this.#transcript.call(name);
    });
    on("microphone", ({ stream }) => {
      this.#meter?.stop();
      this.#meter = new Meter(stream, (level) => orb.style.setProperty("--level", level));
    });
    on("unplugged", ({ error }) => this.#complain(inWords(error, this.#texts)));
    on("voice", ({ stream }) => { voice.srcObject = stream; });
    on("words", (words) => this.#transcript.write(words));
    on("over", ({ reason }) => this.#over(reason ? ending(reason, this.#texts) : this.#texts.of("ready")));
    on("failed", ({ error }) => {
      this.#over(this.#texts.of("ready"));
      this.#complain(error.status === 401 ? this.#texts.of("notThere") : inWords(error, this.#texts));
    });
  }

  #react(root) {
    const { opener, close, talk, mute, panel } = this.#parts;
    opener.addEventListener("click", () => this.#open());
    close.addEventListener("click", () => this.#close());
    talk.addEventListener("click", () => (this.#conversation.live ? this.#conversation.hangUp() : this.#begin()));
    mute.addEventListener("click", () => this.#conversation.mute(!this.#conversation.muted));
    root.addEventListener("keydown", (event) => event.key === "Escape" && !panel.hidden && this.#close());
    addEventListener("pagehide", () => this.#conversation.hangUp());
  }

  #open() {
    this.#parts.panel.hidden = false;
    this.#parts.opener.hidden = true;
    this.#begin();
    this.#parts.talk.focus();
  }

  #close() {
    this.#conversation.hangUp();
    this.#parts.panel.hidden = true;
    this.#parts.opener.hidden = false;
    this.#parts.opener.focus();
  }

  #begin() {
    this.#complain("");
    this.#transcript.clear();
    this.#there.observe(document, { childList: true, subtree: true });
    this.#conversation.begin(() => openMicrophone());
  }

  #show(state) {
    this.#state = state;
    this.#parts.orb.dataset.state = state;
    this.#controls();
    if (state !== "idle") this.#parts.state.textContent = this.#texts.doing(state, this.#conversation.muted);
  }

  #controls() {
    const { live } = this.#conversation;
    this.#parts.talk.textContent = this.#texts.of(live ? "hangUp" : "start");
    this.#parts.talk.dataset.live = live;
    this.#parts.mute.hidden = !live || this.#state === "connecting";
  }

  #over(text) {
    this.#there.disconnect();
    this.#meter?.stop();
    this.#meter = null;
    this.#controls();
    this.#parts.state.textContent = text;
  }

  #complain(text) {
    this.#parts.problem.textContent = text;
    this.#parts.problem.hidden = !text;
  }
}

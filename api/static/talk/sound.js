// The choice of microphone and speaker, and how loud the microphone is, before the call and in it.

import { Meter } from "./meter.js";
import { openMicrophone, release } from "./microphone.js";

export class Sound {
  #microphones;
  #speakers;
  #voice;
  #usual;
  #show;
  #meter = null;
  #checked = null; // the stream of a check before the call
  #asked = 0; // a microphone that comes after something else was asked for is given back

  // `microphones`, `speakers`: <select>s; `usual`: the first choice of both; `show` is told how loud it is, null for
  // not any more.
  constructor({ microphones, speakers, voice, usual, show }) {
    this.#microphones = microphones;
    this.#speakers = speakers;
    this.#voice = voice;
    this.#usual = usual;
    this.#show = show;
    speakers.addEventListener("change", () => {
      voice.setSinkId(speakers.value).catch(() => { speakers.value = voice.sinkId; });
    });
    navigator.mediaDevices?.addEventListener("devicechange", () => this.#list());
  }

  // Takes the microphone that is chosen, to see how loud it is.
  async check() {
    const asked = ++this.#asked;
    const stream = await openMicrophone(this.#microphones.value);
    if (asked !== this.#asked) return release(stream);
    this.stop();
    this.#checked = stream;
    this.follow(stream);
  }

  // The microphone for a call: the one that was checked, else a new one.
  async open() {
    this.#asked += 1;
    const stream = this.#checked;
    this.#checked = null;
    if (stream) return stream;
    if (this.#microphones.value) await this.#list(); // what was chosen may be gone
    return openMicrophone(this.#microphones.value);
  }

  // Shows how loud `stream` is, until `stop`.
  follow(stream) {
    this.#meter?.stop();
    this.#meter = new Meter(stream, this.#show);
    return this.#list();
  }

  stop() {
    this.#asked += 1;
    this.#meter?.stop();
    this.#meter = null;
    release(this.#checked);
    this.#checked = null;
    this.#show(null);
  }

  // Browsers name devices once one of them was given.
  async #list() {
    const devices = await navigator.mediaDevices.enumerateDevices();
    this.#fill(this.#microphones, devices.filter(({ kind }) => kind === "audioinput"));
    const speakers = "setSinkId" in this.#voice ? devices.filter(({ kind }) => kind === "audiooutput") : [];
    this.#fill(this.#speakers, speakers);
    this.#speakers.closest("label").hidden = !speakers.length;
  }

  #fill(select, devices) {
    const chosen = select.value;
    const named = devices.filter(({ deviceId, label }) => label && deviceId !== "default");
    select.replaceChildren(new Option(this.#usual, ""), ...named.map(({ deviceId, label }) => new Option(label, deviceId)));
    select.value = named.some(({ deviceId }) => deviceId === chosen) ? chosen : "";
    if (select.value !== chosen) select.dispatchEvent(new Event("change"));
  }
}

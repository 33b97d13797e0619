// Conversations with one agent, one at a time: the microphone, the invitation, the call. Leaves as DOM events:
// state {state}, muted {muted}, agent {name}, microphone {stream}, unplugged {error} where no other microphone is there,
// voice {stream}, words and turn as WhipCall has them, and at the end over {reason} or failed {error}.

import { release } from "./microphone.js";
import { WhipCall, ask, refusal } from "./whip.js";

export class Lost extends Error {}

export class Conversation extends EventTarget {
  #session;
  #whip;
  #muted = false;
  #state = "idle";
  // The call that is being set up or goes on. `#finish` ends it at whatever step it is; what that step still brings
  // is given back by `begin`.
  #current = null;

  // `server`: the origin of the media server. Without `token` the agent is asked for an invitation.
  constructor(server, agent, token = "") {
    super();
    this.#session = new URL(`/talk/${encodeURIComponent(agent)}/session`, server);
    this.#whip = new URL("/rtc/whip", server);
    this.token = token;
  }

  get live() {
    return this.#current !== null;
  }

  get muted() {
    return this.#muted;
  }

  // `open` gives the stream of a microphone, or null where nothing is said aloud.
  async begin(open) {
    if (this.#current) return;
    // `streams`: every microphone that is open, while one takes the place of another.
    const ours = (this.#current = { open, stream: null, streams: new Set(), call: null, invitation: "" });
    this.#show("connecting");
    try {
      await this.#connect(ours);
    } catch (error) {
      if (ours === this.#current) this.#finish("failed", { error });
    }
    if (ours === this.#current) return;
    ours.streams.forEach(release);
    if (ours.invitation) this.#giveBack(ours.invitation);
  }

  hangUp() {
    if (this.#current) this.#finish("over", { reason: this.#current.call ? "client_initiated" : null });
  }

  mute(on) {
    this.#muted = on;
    for (const stream of this.#current?.streams ?? []) for (const track of stream.getAudioTracks()) track.enabled = !on;
    this.#tell("muted", { muted: on });
  }

  // Goes on with another microphone; gives the old one back, or the other where it is not taken.
  async replace(stream) {
    const ours = this.#current;
    if (!ours?.stream) return release(stream);
    this.#keep(ours, stream);
    let loser = stream;
    try {
      if (ours.call) await ours.call.replace(stream);
      if (ours !== this.#current) return;
      loser = ours.stream;
      ours.stream = stream;
      this.#tell("microphone", { stream });
    } catch (error) {
      if (ours === this.#current) throw error;
    } finally {
      release(loser);
      ours.streams.delete(loser);
    }
  }

  write(text) {
    return this.#current?.call?.write(text) ?? false;
  }

  // Returns early where it was hung up meanwhile.
  async #connect(ours) {
    ours.stream = await ours.open();
    if (ours.stream) this.#keep(ours, ours.stream);
    if (ours !== this.#current) return;
    if (!this.token) ours.invitation = await this.#invited();
    if (ours !== this.#current) return;
    ours.call = new WhipCall(ours.stream);
    this.#listen(ours);
    await ours.call.start(this.#whip, this.token || ours.invitation);
    if (ours.stream) this.#tell("microphone", { stream: ours.stream });
  }

  #keep(ours, stream) {
    ours.streams.add(stream);
    this.mute(this.#muted);
    const [track] = stream.getAudioTracks();
    track.addEventListener("ended", () => ours === this.#current && ours.stream === stream && this.#reopen(ours));
  }

  // Where the device was unplugged: the call goes on with another one, or unheard.
  async #reopen(ours) {
    try {
      const stream = await ours.open();
      await (ours === this.#current ? this.replace(stream) : release(stream));
    } catch (error) {
      if (ours === this.#current) this.#tell("unplugged", { error });
    }
  }

  // A token for an agent that lets anybody talk. Its room is given back when nobody comes to it.
  async #invited() {
    const answer = await ask(this.#session, { method: "POST" });
    if (!answer.ok) throw await refusal(answer);
    const { participantToken, agentName } = await answer.json();
    if (agentName) this.#tell("agent", { name: agentName });
    return participantToken;
  }

  #giveBack(invitation) {
    const headers = { Authorization: `Bearer ${invitation}` };
    fetch(this.#session, { method: "DELETE", headers, keepalive: true }).catch(() => {});
  }

  #listen(ours) {
    const on = (kind, react) => ours.call.addEventListener(kind, ({ detail }) => ours === this.#current && react(detail));
    on("track", (detail) => this.#tell("voice", detail));
    on("connected", () => ["connecting", "reconnecting"].includes(this.#state) && this.#show("listening"));
    on("reconnecting", () => this.#show("reconnecting"));
    on("state", ({ state }) => this.#show(state));
    for (const kind of ["words", "turn"]) on(kind, (detail) => this.#tell(kind, detail));
    on("ended", ({ reason }) => this.#finish("over", { reason }));
    on("failed", () => this.#finish("failed", { error: new Lost() }));
  }

  #finish(kind, detail) {
    const { streams, call } = this.#current;
    this.#current = null;
    call?.stop();
    streams.forEach(release);
    this.#show("idle");
    this.mute(false);
    this.#tell(kind, detail);
  }

  #show(state) {
    this.#state = state;
    this.#tell("state", { state });
  }

  #tell(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}

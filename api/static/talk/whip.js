// A call to an agent over WHIP: one request with an offer, one answer, one URL to end it. Events of the
// conversation come as JSON over the data channel "events" and leave here as DOM events of the same names:
// words, state, turn, ended; and track (the agent's audio), connected, reconnecting, failed.

const FRAGMENT = "application/trickle-ice-sdpfrag";
const PATIENCE_MS = 25_000; // of a call whose network is gone: the server gives it up soon after
const ATTEMPT_MS = 3_000;

export class CallRefused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export class Unreachable extends Error {}

export class HungUp extends Error {}

export class WhipCall extends EventTarget {
  #peer = new RTCPeerConnection({ bundlePolicy: "max-bundle" });
  #channel = this.#peer.createDataChannel("events");
  #sender = null;
  #resource = null;
  #said = ""; // the server's description
  #connected = false; // has been, once
  #reconnecting = false;
  #over = false;
  #elsewhere = () => this.#reconnect();
  #network = navigator.connection?.type;
  // Told of every change of its speed, too; not every browser tells of networks at all.
  #networkMoved = () => {
    if (navigator.connection.type === this.#network) return;
    this.#network = navigator.connection.type;
    this.#reconnect();
  };

  // Without a stream nothing is sent, only heard.
  constructor(stream) {
    super();
    const [microphone] = stream?.getAudioTracks() ?? ["audio"];
    const way = stream ? { direction: "sendrecv", streams: [stream] } : { direction: "recvonly" };
    this.#sender = this.#peer.addTransceiver(microphone, way).sender;
    this.#channel.onmessage = (message) => this.#heard(JSON.parse(message.data));
    this.#channel.onclose = () => this.#end("ended", { reason: "closed" });
    addEventListener("online", this.#elsewhere);
    navigator.connection?.addEventListener("change", this.#networkMoved);
    this.#peer.ontrack = ({ streams, track }) => this.#tell("track", { stream: streams[0] ?? new MediaStream([track]) });
    this.#peer.onconnectionstatechange = () => this.#moved();
  }

  // Candidates are gathered once the answer has named the servers for it (RFC 9725 section 4.6); ours reach the
  // server with the first check. Throws HungUp where `stop` came before the end.
  async start(url, token) {
    const offer = await this.#still(this.#peer.createOffer());
    // Not given up when it is hung up: only its answer tells what there is to delete.
    const answer = await ask(url, {
      method: "POST",
      headers: { "Content-Type": "application/sdp", Authorization: `Bearer ${token}` },
      body: offer.sdp,
    });
    if (answer.status !== 201) throw await refusal(answer);
    this.#resource = new URL(answer.headers.get("Location"), answer.url || url);
    if (this.#over) this.#leave();
    const sdp = await this.#still(answer.text());
    this.#peer.setConfiguration({ ...this.#peer.getConfiguration(), iceServers: iceServers(answer.headers.get("Link")) });
    await this.#still(this.#peer.setLocalDescription(offer));
    await this.#still(this.#peer.setRemoteDescription({ type: "answer", sdp }));
    this.#said = sdp;
  }

  // Words to the agent, as if they were said. False while nothing can be written.
  write(text) {
    if (this.#channel.readyState !== "open") return false;
    this.#channel.send(JSON.stringify({ type: "text", text }));
    return true;
  }

  // Speaks with the microphone of another stream from now on.
  replace(stream) {
    return this.#sender.replaceTrack(stream.getAudioTracks()[0]);
  }

  // Ends the call from our side, at whatever step it is; the server is told even while the page goes away.
  stop() {
    this.#end("ended", { reason: "client_initiated" });
  }

  // What a step came to; after `stop` it came to nothing.
  async #still(step) {
    const came = await step.catch((error) => { throw this.#over ? new HungUp() : error; });
    if (this.#over) throw new HungUp();
    return came;
  }

  #heard(message) {
    if (message.type !== "ended") return this.#tell(message.type, message);
    this.#resource = null; // the server ended it: there is nothing left to delete there
    this.#end("ended", message);
  }

  #moved() {
    const state = this.#peer.connectionState;
    if (state === "connected") {
      this.#connected = true;
      this.#tell("connected", {});
    }
    if (state === "failed" && !this.#connected) this.#end("failed", {});
    if (!this.#connected || !["disconnected", "failed"].includes(state)) return;
    this.#tell("reconnecting", {});
    this.#reconnect();
  }

  // Tries new network paths until one carries the call, or patience ends.
  async #reconnect() {
    if (!this.#connected || this.#reconnecting || this.#over) return;
    this.#reconnecting = true;
    const giveUpAt = performance.now() + PATIENCE_MS;
    try {
      do await this.#restart(); while (!(await this.#connects()) && performance.now() < giveUpAt);
    } catch (error) {
      if (error instanceof CallRefused) this.#end("failed", {}); // the server has given the call up
    }
    this.#reconnecting = false;
    if (!this.#over && this.#peer.connectionState !== "connected") this.#end("failed", {});
  }

  // An attempt that fails is followed by another one, unless the server has given the call up.
  #restart() {
    return this.#restarted().catch((error) => {
      if (error instanceof HungUp || error instanceof CallRefused) throw error;
    });
  }

  // An ICE restart (RFC 9725 section 4.3.2). Where the server is not reached, nothing has changed.
  async #restarted() {
    const offer = await this.#still(this.#peer.createOffer({ iceRestart: true }));
    const ours = ["ufrag", "pwd"].map((name) => `${credential(offer.sdp, name)}\r\n`).join("");
    const request = { method: "PATCH", headers: { "Content-Type": FRAGMENT }, body: ours };
    const late = new AbortController();
    setTimeout(() => late.abort(), ATTEMPT_MS);
    const answer = await this.#still(ask(this.#resource, { ...request, signal: late.signal }));
    if (answer.status === 404) throw await refusal(answer);
    if (answer.status !== 200) return;
    const theirs = await this.#still(answer.text());
    for (const name of ["ufrag", "pwd"]) {
      this.#said = this.#said.replaceAll(new RegExp(`a=ice-${name}:.*`, "g"), () => credential(theirs, name));
    }
    await this.#still(this.#peer.setLocalDescription(offer));
    await this.#still(this.#peer.setRemoteDescription({ type: "answer", sdp: this.#said }));
  }

  // Whether the call is connected within the time of an attempt.
  #connects() {
    const connected = () => this.#peer.connectionState === "connected" || this.#over;
    if (connected()) return true;
    return new Promise((tell) => {
      const stop = () => { clearTimeout(late); this.#peer.removeEventListener("connectionstatechange", look); };
      const look = () => { if (connected()) { stop(); tell(true); } };
      const late = setTimeout(() => { stop(); tell(connected()); }, ATTEMPT_MS);
      this.#peer.addEventListener("connectionstatechange", look);
    });
  }

  #end(kind, detail) {
    if (this.#over) return;
    this.#over = true;
    removeEventListener("online", this.#elsewhere);
    navigator.connection?.removeEventListener("change", this.#networkMoved);
    this.#leave();
    this.#peer.close();
    this.#tell(kind, detail);
  }

  #leave() {
    if (this.#resource) fetch(this.#resource, { method: "DELETE", keepalive: true }).catch(() => {});
    this.#resource = null;
  }

  #tell(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}

// What a request was answered. Throws Unreachable where it was not.
export function ask(url, request) {
  return fetch(url, request).catch((cause) => { throw new Unreachable(String(url), { cause }); });
}

function credential(sdp, name) {
  return sdp.match(new RegExp(`a=ice-${name}:.*`))[0].trim();
}

// The STUN and TURN servers that a Link header names.
export function iceServers(link) {
  const value = /([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]+))/g;
  const links = (link ?? "").matchAll(/<([^>]*)>((?:\s*;\s*[\w-]+\s*=\s*(?:"(?:[^"\\]|\\.)*"|[^\s;,"]+))*)/g);
  return [...links].flatMap(([, urls, rest]) => {
    const read = ([, name, quoted, bare]) => [name, bare ?? quoted.replace(/\\(.)/g, "$1")];
    const { rel, username, credential } = Object.fromEntries([...rest.matchAll(value)].map(read));
    return rel === "ice-server" ? [username ? { urls, username, credential } : { urls }] : [];
  });
}

export async function refusal(answer) {
  const body = await answer.json().catch(() => ({}));
  return new CallRefused(answer.status, body.error ?? answer.statusText, Number(answer.headers.get("Retry-After")) || 0);
}

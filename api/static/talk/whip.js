// A call to an agent over WHIP: one request with an offer, one answer, one URL to end it. Events of the
// conversation come as JSON over the data channel "events" and leave here as DOM events of the same names:
// words, state, turn, ended; and track (the agent's audio), connected, failed.

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
  #resource = null;
  #over = false;

  constructor(stream) {
    super();
    const [microphone] = stream.getAudioTracks();
    this.#peer.addTransceiver(microphone, { direction: "sendrecv", streams: [stream] });
    const channel = this.#peer.createDataChannel("events");
    channel.onmessage = (message) => this.#heard(JSON.parse(message.data));
    channel.onclose = () => this.#end("ended", { reason: "closed" });
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
    if (state === "connected") this.#tell("connected", {});
    if (state === "failed") this.#end("failed", {});
  }

  #end(kind, detail) {
    if (this.#over) return;
    this.#over = true;
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

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

  async start(url, token) {
    await this.#peer.setLocalDescription();
    const answer = await fetch(url, {
      method: "POST",
      headers: { "Content-Type": "application/sdp", Authorization: `Bearer ${token}` },
      body: this.#peer.localDescription.sdp,
    });
    if (answer.status !== 201) throw await refusal(answer);
    this.#resource = new URL(answer.headers.get("Location"), answer.url || url);
    await this.#peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  }

  // Ends the call from our side; the server is told even while the page goes away.
  stop() {
    this.#end("ended", { reason: "client_initiated" });
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
    if (this.#resource) fetch(this.#resource, { method: "DELETE", keepalive: true }).catch(() => {});
    this.#peer.close();
    this.#tell(kind, detail);
  }

  #tell(kind, detail) {
    this.dispatchEvent(new CustomEvent(kind, { detail }));
  }
}

export async function refusal(answer) {
  const body = await answer.json().catch(() => ({}));
  return new CallRefused(answer.status, body.error ?? answer.statusText, Number(answer.headers.get("Retry-After")) || 0);
}

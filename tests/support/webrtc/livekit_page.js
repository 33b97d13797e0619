// What an application does with livekit-client, and a line in `events` for everything that it is told.
const LK = window.LivekitClient;
const events = [];
const tell = (event, more = {}) => events.push({ event, ...more });
const context = new AudioContext({ sampleRate: 16000 });
const heard = [];
let room;

// Every description that the SDK sends or takes, by connection: a line with its ICE user name.
const connections = [];
for (const [side, name] of [['local', 'setLocalDescription'], ['remote', 'setRemoteDescription']]) {
  const original = RTCPeerConnection.prototype[name];
  RTCPeerConnection.prototype[name] = async function set(...given) {
    await original.apply(this, given);
    if (!connections.includes(this)) connections.push(this);
    const said = this[`${side}Description`];
    const ufrag = said.sdp.match(/a=ice-ufrag:(.*)/)?.[1].trim();
    tell('description', { connection: connections.indexOf(this), side, type: said.type, ufrag });
  };
}

// What the server closed a WebSocket with.
const closed = [];
window.WebSocket = class extends WebSocket {
  constructor(...given) {
    super(...given);
    this.addEventListener('close', ({ reason }) => closed.push(reason));
  }
};

async function packetsHeard() {
  let count = 0;
  for (const each of connections)
    for (const report of (await each.getStats()).values())
      if (report.type === 'inbound-rtp') count += report.packetsReceived;
  return count;
}

// What a file says, once, from when the microphone is opened and in its place. (Firefox without a sound card
// runs no AudioContext, but media elements.)
function speak(file) {
  const real = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
  navigator.mediaDevices.getUserMedia = async (wanted) => {
    (await real(wanted)).getTracks().forEach((track) => track.stop());
    const voice = new Audio(`data:audio/wav;base64,${file}`);
    const microphone = voice.mozCaptureStream();
    await voice.play();
    for (const each of microphone.getTracks()) each.applyConstraints = async () => {};
    return microphone;
  };
}

async function loudness() {
  let energy = 0;
  for (const each of connections)
    for (const report of (await each.getStats()).values())
      if (report.type === 'inbound-rtp') energy += report.totalAudioEnergy;
  return energy;
}

function record(track) {
  const node = context.createScriptProcessor(1024, 1, 1);
  node.onaudioprocess = ({ inputBuffer }) => heard.push(
    Int16Array.from(inputBuffer.getChannelData(0), (x) => Math.max(-1, Math.min(1, x)) * 32767));
  context.createMediaStreamSource(new MediaStream([track.mediaStreamTrack])).connect(node);
  node.connect(context.destination);
}

function watch() {
  const is = LK.RoomEvent;
  room.on(is.TrackSubscribed, (track, publication, who) => {
    document.body.append(track.attach());
    record(track);
    tell('subscribed', { to: who.identity, agent: who.kind === LK.ParticipantKind.AGENT });
  });
  room.on(is.TranscriptionReceived, (segments, who) => {
    for (const each of segments) tell('segment', { who: who?.identity, text: each.text, final: each.final });
  });
  room.on(is.DataReceived, (data, who, kind, topic) =>
    tell('data', { who: who?.identity, text: new TextDecoder().decode(data), topic }));
  room.on(is.ActiveSpeakersChanged, (who) => tell('speakers', { who: who.map((each) => each.identity) }));
  room.on(is.ParticipantAttributesChanged, (changed, who) => tell('attributes', { who: who.identity, changed }));
  room.on(is.ConnectionQualityChanged, (quality, who) => tell('quality', { who: who.identity, quality }));
  room.on(is.LocalTrackSubscribed, () => tell('listened to'));
  for (const name of ['SignalReconnecting', 'Reconnecting', 'Reconnected']) room.on(is[name], () => tell(name));
  room.on(is.Disconnected, (reason) => tell('disconnected', { reason }));
  room.registerTextStreamHandler('lk.transcription', async (reader, who) => {
    const pieces = [];
    for await (const piece of reader) pieces.push(piece);
    const final = reader.info.attributes['lk.transcription_final'] === 'true';
    tell('stream', { who: who.identity, text: pieces.join(''), pieces: pieces.length, final });
  });
  (room.registerRpcMethod ? room : room.localParticipant).registerRpcMethod('locate', async (call) =>
    JSON.stringify({ asked: call.payload, by: call.callerIdentity }));
}

async function joinEncrypted(url, token) {
  const keyProvider = new LK.ExternalE2EEKeyProvider();
  await keyProvider.setKey('known to the people, not to the server');
  await join(url, token, { e2ee: { keyProvider, worker: new Worker('/worker.js') } });
}

async function join(url, token, options = {}) {
  room = new LK.Room(options);
  watch();
  if (options.e2ee) await room.setE2EEEnabled(true);
  await room.connect(url, token);
  tell('connected', { version: LK.version, others: [...room.remoteParticipants.keys()] });
  await room.localParticipant.setMicrophoneEnabled(true);
}

const reasonOf = async (work) => work.then((value) => value ?? 'done', (error) => `${error.code ?? ''} ${error.message}`);

function played() {
  const all = new Uint8Array(heard.length * 2048);
  heard.forEach((piece, place) => all.set(new Uint8Array(piece.buffer), place * 2048));
  let text = '';
  for (let at = 0; at < all.length; at += 32768) text += String.fromCharCode(...all.subarray(at, at + 32768));
  return btoa(text);
}

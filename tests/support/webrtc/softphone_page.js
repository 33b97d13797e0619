// What a page does with JsSIP, and a line in `events` for everything that it is told.
const events = [];
const tell = (event, more = {}) => events.push({ event, ...more });
const context = new AudioContext({ sampleRate: 16000 });
const heard = [];
let agent;
let session;

const listen = (stream) => {
  const muted = new Audio(); // Chromium decodes a remote stream only while an element plays it
  muted.srcObject = stream;
  muted.muted = true;
  muted.play();
  const source = context.createMediaStreamSource(stream);
  const tap = context.createScriptProcessor(4096, 1, 1);
  tap.onaudioprocess = ({ inputBuffer }) => heard.push(new Float32Array(inputBuffer.getChannelData(0)));
  source.connect(tap);
  tap.connect(context.destination);
};

// How loud the loudest moment was of what was heard so far.
const loudest = () => Math.max(0, ...heard.map((block) => Math.max(...block.map(Math.abs))));

const follow = (it) => {
  session = it;
  const connected = () => it.connection.addEventListener('track', ({ streams, track }) => {
    listen(streams[0] ?? new MediaStream([track]));
  });
  if (it.connection) connected(); else it.on('peerconnection', connected);
  for (const name of ['progress', 'accepted', 'confirmed', 'ended', 'failed'])
    it.on(name, (told) => tell(name, { originator: told?.originator, cause: told?.cause }));
};

const phone = (url, user, password, domain) => new Promise((done) => {
  const sockets = [new JsSIP.WebSocketInterface(url)];
  agent = new JsSIP.UA({ sockets, uri: `sip:${user}@${domain}`, password, register_expires: 120 });
  agent.on('registered', () => { tell('registered'); done('registered'); });
  agent.on('registrationFailed', ({ cause }) => { tell('refused', { cause }); done(cause); });
  agent.on('newRTCSession', ({ originator, session: it }) => {
    follow(it);
    tell('session', { originator, from: it.remote_identity.uri.user });
    if (originator === 'remote')
      it.answer({ mediaConstraints: { audio: true, video: false }, pcConfig: { iceServers: [] } });
  });
  agent.start();
});

const dial = (target) => {
  agent.call(target, { mediaConstraints: { audio: true, video: false }, pcConfig: { iceServers: [] } });
  return 'dialled';
};

// npm's livekit-server-sdk, unmodified, administers a room: node livekit_server.mjs URL KEY SECRET ROOM NUMBER.
// Prints one line of JSON: what each call answered, or the code of its refusal.
import { DataPacket_Kind, RoomServiceClient, SipClient } from 'livekit-server-sdk';

const [url, key, secret, room, number] = process.argv.slice(2);
const rooms = new RoomServiceClient(url, key, secret);
const sip = new SipClient(url, key, secret);
const told = {};
const ask = async (name, work) => {
  try { told[name] = await work(); } catch (error) { told[name] = error.code ?? String(error); }
};

await ask('rooms', async () => (await rooms.listRooms()).map((each) => each.name).includes(room));
const people = await rooms.listParticipants(room);
const ann = people.find((each) => each.identity === 'ann');
await ask('people', async () => people.length);
await ask('participant', async () => (await rooms.getParticipant(room, 'ann')).identity);
await ask('muted', async () => (await rooms.mutePublishedTrack(room, 'ann', ann.tracks[0].sid, true)).muted);
await ask('unmuted', async () => (await rooms.mutePublishedTrack(room, 'ann', ann.tracks[0].sid, false)).muted);
await ask('updated', async () => (await rooms.updateParticipant(room, 'ann', { attributes: { seat: '4' } })).attributes.seat);
await ask('metadata', async () => (await rooms.updateRoomMetadata(room, 'shop 7')).metadata);
await ask('data', async () => (await rooms.sendData(room, new TextEncoder().encode('from node'), DataPacket_Kind.RELIABLE, { topic: 'news' })) ?? 'sent');
await ask('created', async () => (await rooms.createRoom({ name: 'other' })).name);
await ask('dialled', async () => (await sip.createSipParticipant('', number, room, { participantIdentity: 'desk' })).participantIdentity);
await ask('transferred', async () => (await sip.transferSipParticipant(room, 'nobody', `tel:${number}`)) ?? 'done');
await ask('removed', async () => (await rooms.removeParticipant(room, 'ann')) ?? 'removed');
await ask('deleted', async () => (await rooms.deleteRoom(room)) ?? 'deleted');
console.log(JSON.stringify(told));

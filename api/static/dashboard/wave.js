// The recording: fetched once with the key, played from memory, and measured slice by slice, so that a long call does
// not need its samples in memory at once.

const SLICE = 1 << 20;
const BARS = 1200;

function header(view) {
  const tag = (place) => String.fromCharCode(...new Uint8Array(view.buffer, place, 4));
  if (view.byteLength < 44 || tag(0) !== "RIFF" || tag(8) !== "WAVE") return null;
  let place = 12, found = null;
  while (place + 8 <= view.byteLength) {
    const name = tag(place), size = view.getUint32(place + 4, true);
    if (name === "fmt ") found = { kind: view.getUint16(place + 8, true), channels: view.getUint16(place + 10, true), rate: view.getUint32(place + 12, true), bits: view.getUint16(place + 22, true) };
    if (name === "data" && found) return { ...found, start: place + 8 };
    place += 8 + size + (size % 2);
  }
  return null;
}

// The loudest sample of each of `BARS` parts, by channel, 0 to 1, and the length in seconds. Null: not a recording that
// can be drawn; it can be played all the same.
export async function measure(blob) {
  const found = header(new DataView(await blob.slice(0, 4096).arrayBuffer()));
  if (!found || found.bits !== 16 || found.channels !== 2) return null;
  const samples = Math.floor((blob.size - found.start) / 4);
  if (!samples) return null;
  const peaks = [new Float32Array(BARS), new Float32Array(BARS)];
  for (let place = 0; place < samples; place += SLICE / 4) {
    const from = found.start + place * 4;
    const part = new Int16Array(await blob.slice(from, Math.min(from + SLICE, found.start + samples * 4)).arrayBuffer());
    for (let i = 0; i < part.length; i += 2) {
      const bar = Math.floor(((place + i / 2) / samples) * BARS);
      for (const side of [0, 1]) {
        const level = Math.abs(part[i + side]) / 32768;
        if (level > peaks[side][bar]) peaks[side][bar] = level;
      }
    }
  }
  return { caller: peaks[0], agent: peaks[1], duration: samples / found.rate };
}

// A filled shape on one side of the middle line of a box of 1000 × 100.
export function shape(peaks, sign) {
  let path = "M0 50";
  peaks.forEach((level, place) => {
    const high = level < 0.004 ? 0.5 : Math.sqrt(level) * 48;
    path += `L${((place / peaks.length) * 1000).toFixed(1)} ${(50 - sign * high).toFixed(1)}`;
  });
  return `${path}L1000 50Z`;
}

// The person's microphone, or why there is none.

export class NoMicrophone extends Error {}

export async function openMicrophone(deviceId) {
  if (!navigator.mediaDevices) throw new NoMicrophone("", { cause: { name: "Insecure" } });
  const audio = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };
  if (deviceId) audio.deviceId = { exact: deviceId };
  return navigator.mediaDevices.getUserMedia({ audio }).catch((cause) => {
    throw new NoMicrophone(cause.message, { cause });
  });
}

export function release(stream) {
  stream?.getTracks().forEach((track) => track.stop());
}

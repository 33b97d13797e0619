// Every failure in words that say what to do about it.

import { Lost } from "./conversation.js";
import { NoMicrophone } from "./microphone.js";
import { Unreachable } from "./whip.js";

const MICROPHONE = ["NotFoundError", "NotAllowedError", "NotReadableError", "OverconstrainedError", "Insecure"];
const REFUSED = [403, 404, 413, 429, 503];
const ENDINGS = [
  "client_initiated", "room_closed", "closed", "duplicate_identity", "server_shutdown", "media_failure", "join_failure",
];

export function inWords(error, texts) {
  const message = error.message;
  if (error instanceof NoMicrophone) {
    const { name } = error.cause;
    return MICROPHONE.includes(name) ? texts.of(name) : texts.of("noMicrophone", { message });
  }
  if (error instanceof Lost) return texts.of("media_failure");
  if (error?.status === 401) return texts.of(/expired/i.test(message) ? "expired" : "needsToken");
  if (error?.status) return refused(error, texts);
  return error instanceof Unreachable ? texts.of("unreachable") : texts.of("wrong", { message });
}

function refused({ status, message, retryAfter }, texts) {
  const again = retryAfter ? ` ${texts.of("again", { seconds: retryAfter })}` : "";
  return (REFUSED.includes(status) ? texts.of(status) : texts.of("refused", { message })) + again;
}

export function ending(reason, texts) {
  return texts.of(ENDINGS.includes(reason) ? reason : "closed");
}

// Every failure in words that say what to do about it.

import { Unreachable } from "./whip.js";

export class NoMicrophone extends Error {}

const MICROPHONE = {
  NotFoundError: "No microphone was found. Connect one and try again.",
  NotAllowedError: "The microphone is blocked. Allow it for this page in the browser's address bar, then try again.",
  NotReadableError: "Another program is using the microphone. Close it and try again.",
  OverconstrainedError: "This microphone cannot be used. Choose another one in the browser's settings.",
};

export const INSECURE = "Browsers give the microphone to secure pages only: open this page over https or on localhost.";
export const LOST = "The connection was lost. Check your network and start again.";
export const UNREACHABLE = "The server cannot be reached. Check your network and try again.";

const REFUSED = {
  404: "This conversation is over, or its link was never valid. Ask for a new one.",
  413: "The server refused the request: it is too large.",
  429: "Too many attempts.",
  503: "The server is full at the moment.",
};

export function inWords(error) {
  if (error instanceof NoMicrophone) return MICROPHONE[error.cause.name] ?? `The microphone cannot be used: ${error.message}`;
  if (error?.status === 401) return unauthorised(error.message);
  if (error?.status) {
    const again = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
    return `${REFUSED[error.status] ?? `The server refused: ${error.message}.`}${again}`;
  }
  return error instanceof Unreachable ? UNREACHABLE : `Something went wrong: ${error.message}`;
}

function unauthorised(message) {
  if (/expired/i.test(message)) return "The token has expired: it is good for 15 minutes. Ask for a new one.";
  return "This agent needs a token. Paste the participant token you were given.";
}

const ENDINGS = {
  client_initiated: "You hung up.",
  room_closed: "The agent hung up.",
  closed: "The call has ended.",
  duplicate_identity: "You continued this conversation in another window.",
  server_shutdown: "The server is restarting. Start again in a moment.",
  media_failure: LOST,
  join_failure: "No audio connection came about. A firewall may be blocking UDP.",
};

export function ending(reason) {
  return ENDINGS[reason] ?? "The call has ended.";
}

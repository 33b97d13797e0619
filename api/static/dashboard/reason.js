// How a call ended, in one sentence. The codes of the API stay beside the words wherever they are shown.

const CAUSES = {
  normal: "the call was ended in order",
  busy: "the line was busy",
  no_answer: "nobody picked up",
  rejected: "the carrier or the person refused the call",
  not_found: "the carrier knows no such number",
  cancelled: "it was cancelled before anybody answered",
  unreachable: "the carrier could not be reached",
  incompatible: "the carrier offered no codec that this server has",
  remote_error: "the carrier reported an error",
  address_refused: "the other side named an address that is closed to this trunk",
  media_timeout: "no audio came any more",
  session_expired: "the other side stopped refreshing the session",
  no_ack: "the answer was never confirmed by the other side",
  engine_failed: "the process that signalled the call has failed",
  shutdown: "the server was stopped",
  server_error: "this server failed",
  not_configured: "its agent or trunk is not configured any more",
  database_restored: "the database was restored, and the call may have been dialled before",
  silence: "nobody spoke through every reprompt",
  max_duration: "it reached the longest time that a call may last",
  engine_error: "a speech engine or the agent failed turn after turn",
};

const RULES = {
  not_configured: "Agent or trunk is not configured",
  dial_prefix: "Number is outside of what the company dials",
  do_not_call: "Number is on the do-not-call list",
  caller_id: "Caller number is not one of the company's",
  contact_limit: "Number was called too often lately",
  calling_window: "Outside of the hours of the called number",
  company_limit: "All of the company's lines are taken",
  trunk_limit: "All of the trunk's lines are taken",
  trunk_rate: "The trunk takes no more calls this second",
  batch_paused: "Its batch is paused",
  retry: "Last attempt failed, and the agent tries again",
  not_dialled: "A node claimed the call and could not dial it",
};

const ROLES = { stt: "recogniser", tts: "voice", agent: "agent", recording: "recording" };

const WAITING = {
  stt_late: "the recogniser", agent_late: "the agent", agent_silent: "an empty answer of the agent", tts_late: "the voice",
  endpointing: "the end of the turn", keying: "keys", waiting: "what the agent had announced", interrupted: "noise that stopped the agent",
  noise: "noise taken for the caller", held: "a line on hold", tts_silent: "silence in the voice", closing: "the end of the call",
};

export const STATUS = {
  PENDING: ["Waiting", "idle"], DIALING: ["Dialling", "accent"], RINGING: ["Ringing", "accent"], ANSWERED: ["Live", "good"],
  COMPLETED: ["Completed", "good"], NO_ANSWER: ["No answer", "warn"], BUSY: ["Busy", "warn"], FAILED: ["Failed", "bad"],
  CANCELLED: ["Cancelled", "idle"], UNKNOWN: ["Unknown", "bad"],
};

export const rule = (name) => RULES[name] ?? name;
export const role = (name) => ROLES[name] ?? name;
export const waitedFor = (cause) => WAITING[cause] ?? cause;
const cause = (call) => CAUSES[call.hangupCause] ?? (call.hangupCause ? `it ended with “${call.hangupCause}”` : "no reason was given");
const code = (call) => (call.sipStatus >= 300 ? ` (SIP ${call.sipStatus})` : "");

function waiting(call) {
  const last = call.decisions?.at(-1);
  if (!last) return "It waits in the queue and was not dialled yet.";
  const next = call.nextAttemptAt ? `, next ${new Date(call.nextAttemptAt).toLocaleString()}` : "";
  return `Not called yet: ${rule(last.rule)[0].toLowerCase()}${rule(last.rule).slice(1)}${next}.`;
}

const over = {
  COMPLETED: (call) => {
    if (CAUSES[call.hangupCause] && call.hangupCause !== "normal") return `It was answered, and ended because ${cause(call)}.`;
    return call.endedBy === "remote" ? "It was answered, and the other side hung up." : "It was answered, and the agent hung up.";
  },
  NO_ANSWER: (call) => `Not reached: ${cause(call)}${code(call)}.`,
  BUSY: (call) => `Not reached: ${cause(call)}${code(call)}.`,
  FAILED: (call) => {
    const last = call.decisions?.at(-1);
    const why = !call.attempts?.length && last ? `${rule(last.rule)} (${last.rule})` : `${cause(call)}${code(call)}`;
    return `${call.answeredAt ? "It failed after the answer" : "It failed before anybody answered"}: ${why}.`;
  },
  CANCELLED: (call) => `Not called: ${cause(call)}.`,
  UNKNOWN: () => "The server that held the call was lost. It may have rung, so no machine dials it again.",
};

export function sentence(call) {
  if (call.status === "PENDING") return waiting(call);
  if (call.status in over) return over[call.status](call);
  return { DIALING: "The number is being dialled.", RINGING: "It rings.", ANSWERED: "They are talking." }[call.status] ?? call.status;
}

// A user's program on the types that openapi-typescript makes, with openapi-fetch: prints what it got as JSON.
//
//     node openapi_typescript.js URL CALLS_KEY SPEECH_KEY WEB_KEY
import createClient from "openapi-fetch";
import type { paths } from "./service";

const AGENT = "2f1c1a34-6f3e-4f0e-9a63-0d8f2f0f7a11";
const [url, callsKey, speechKey, webKey] = process.argv.slice(2);
const api = (key: string) =>
  createClient<paths>({ baseUrl: url.replace(/\/$/, ""), headers: { Authorization: `Bearer ${key}` } });

async function main(): Promise<void> {
  const calls = api(callsKey), speech = api(speechKey), promptVariables = { name: "Bo" };
  const placed = await calls.POST("/api/v1/calls/outbound", {
    body: { agentId: AGENT, phoneNumber: "+14155550123", promptVariables, dryRun: false },
  });
  const batch = await calls.POST("/api/v1/calls/outbound", {
    body: { agentId: AGENT, calls: [{ phoneNumber: "+14155550124", promptVariables }], dryRun: false },
  });
  const trial = await calls.POST("/api/v1/calls/outbound", {
    body: { agentId: AGENT, phoneNumber: "+14155550125", promptVariables, dryRun: true },
  });
  if (!placed.data || !("callTaskId" in placed.data.data)) throw new Error("not placed");
  if (!batch.data || !("queued" in batch.data.data)) throw new Error("no batch");
  if (!trial.data || !("action" in trial.data.data)) throw new Error("no trial");
  const page = await calls.GET("/api/v1/calls");
  const callTaskId = placed.data.data.callTaskId;
  const call = await calls.GET("/api/v1/calls/{callTaskId}", { params: { path: { callTaskId } } });
  const cancelled = await calls.POST("/api/v1/calls/queue/cancel/{phoneNumber}", {
    params: { path: { phoneNumber: "+14155550199" } },
    body: {},
  });
  const ticket = await api(webKey).POST("/api/v1/web-calls/connect", { body: { agentId: AGENT, metadata: { promptVariables } } });
  const audio = await speech.POST("/v1/text-to-speech/generate", {
    body: { text: "Hello.", format: "wav", chunk_size: 100 },
    parseAs: "blob",
  });
  const sound = audio.data as unknown as Blob;
  const form = new FormData();
  form.append("file", sound, "hello.wav");
  form.append("job_id", "job-1");
  const heard = await speech.POST("/transcribe", {
    body: { file: "" },
    bodySerializer: () => form,
  });
  console.log(
    JSON.stringify({
      placed: [placed.data.success, placed.data.data.phoneNumber],
      batch: [batch.data.success, batch.data.data.queued],
      trial: [trial.data.success, trial.data.data.action],
      calls: page.data?.calls.map((each) => each.phoneNumber).sort(),
      call: call.data?.callTaskId === callTaskId,
      cancelled: [cancelled.data?.success, cancelled.data?.data.cancelled],
      token: (ticket.data?.participantToken ?? "").split(".").length - 1,
      audio: await sound.slice(0, 4).text(),
      job: heard.data?.job_id,
    }),
  );
}

main().catch((error: unknown) => {
  console.error(error);
  process.exit(1);
});

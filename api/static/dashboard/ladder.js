// The SIP messages of a call between this server and the carrier. What was taken out for secrecy stands as *** in them.

import { at, clock, h, number, said } from "./dom.js";

const LINE = /^([A-Za-z][A-Za-z0-9-]*\s*):(.*)$/;

export function drawLadder(trace, story, seek) {
  const rungs = at("rungs");
  const open = new Map();
  const show = (message, button) => {
    rungs.querySelectorAll("button").forEach((each) => each.setAttribute("aria-pressed", String(each === button)));
    at("message").replaceChildren(
      h("header", {}, h("h3", {}, message.sent ? "Sent " : "Received ", h("span", { class: "soft" }, clock(story.at(message.at), 2))),
        h("small", {}, `${new TextEncoder().encode(message.text).length} bytes, ${message.transport}, secrets removed`)),
      h("pre", { dir: "ltr", tabindex: 0 }, message.text.split("\r\n").map((line, place) => [body(line, place), "\n"])));
  };
  rungs.replaceChildren();
  at("ends").replaceChildren();
  at("message").replaceChildren();
  if (!trace.messages.length) {
    at("message").append(h("p", { class: "empty" }, story.call.direction === "web" ? "A call from a browser has no SIP." : "No messages are kept: the call never left this server, or their time is over."));
    return;
  }
  const first = trace.messages[0];
  at("ends").append(h("span", {}, "This server", h("small", {}, number(first.local))), h("span", {}, "Carrier", h("small", {}, number(first.remote))));
  let leg = first.leg;
  for (const message of trace.messages) {
    if (message.leg !== leg) rungs.append(h("li", { class: "part" }, `Telephone ${message.leg + 1}`));
    leg = message.leg;
    const status = Number.parseInt(message.summary, 10);
    const tone = status >= 300 && status !== 401 && status !== 407 ? "bad" : status >= 200 && status < 300 ? "good" : null;
    const button = h("button", { type: "button", "aria-pressed": "false" },
      h("time", {}, clock(story.at(message.at), 2)),
      h("span", { class: "rung", "data-dir": message.sent ? "out" : "in", "data-tone": tone, "data-again": message.repetition },
        h("span", {}, said(message.summary), message.repetition ? h("span", { class: "soft" }, " again") : null), h("span", { class: "hide" }, message.sent ? " to the carrier" : " from the carrier")));
    button.addEventListener("click", () => { show(message, button); seek(story.at(message.at)); });
    rungs.append(h("li", {}, button));
    open.set(message, button);
  }
  for (const each of trace.legs) if (each.leftOut) rungs.append(h("li", { class: "part" }, `${each.leftOut} messages in the middle were not kept`));
  const final = trace.messages.findLast((each) => !each.sent && Number.parseInt(each.summary, 10) >= 300 && !/^40[17]/.test(each.summary));
  const chosen = final ?? trace.messages.find((each) => each.summary === "INVITE") ?? first;
  show(chosen, open.get(chosen));
}

function body(line, place) {
  if (place === 0) return h("b", {}, line);
  const found = LINE.exec(line);
  const parts = (text) => text.split("***").flatMap((each, i) => (i ? [h("mark", {}, "removed"), each] : [each]));
  return found && !/^[a-z]=/.test(line) ? [h("i", {}, `${found[1]}:`), parts(found[2])] : parts(line);
}

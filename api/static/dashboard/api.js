// The public API with the visitor's key. The key stays in this tab's sessionStorage and goes nowhere but to this
// server; closing the tab forgets it.

import { at, h } from "./dom.js";

const KEPT = "openline.key";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}` });

async function reached(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { ...options, headers: { ...headers(), ...options.headers }, cache: "no-store" });
  } catch {
    throw new Refused(0, "The server does not answer. The page tries again when you do.");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, String(body.error ?? `The server answered ${answer.status}`));
}

export const json = async (path, options) => (await reached(path, options)).json();
export const file = async (path) => (await reached(path)).blob();

export async function save(path, name) {
  const url = URL.createObjectURL(await file(path));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Runs `show` with a key that the server takes; asks for another one as long as it does not.
export function withKey(show) {
  const form = at("door"), box = at("key"), problem = at("refused");
  const ask = (why) => {
    form.hidden = false;
    at("page").hidden = at("leave").hidden = true;
    problem.textContent = why;
    problem.hidden = !why;
    box.focus();
  };
  const enter = async () => {
    if (!sessionStorage.getItem(KEPT)) return ask("");
    form.hidden = true;
    at("page").hidden = at("leave").hidden = false;
    try {
      await show();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      if (error.status !== 401 && error.status !== 403) return complain(error);
      sessionStorage.removeItem(KEPT);
      ask(error.message);
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(KEPT, box.value.trim());
    box.value = "";
    enter();
  });
  at("leave").addEventListener("click", () => {
    sessionStorage.removeItem(KEPT);
    location.reload();
  });
  enter();
}

export function complain(error) {
  const box = at("problem");
  box.hidden = false;
  box.textContent = error.status === 404 ? "There is no such call, or it is not this key's to see." : error.message;
}

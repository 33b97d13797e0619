// What was said, line by line, in an <ol>.

export class Transcript {
  #list;
  #names; // by speaker

  constructor(list, texts) {
    this.#list = list;
    this.#names = { agent: texts.of("agent"), caller: texts.of("you"), colleague: texts.of("colleague") };
  }

  clear() {
    this.#list.replaceChildren();
  }

  // The name of the agent, from now on.
  call(agent) {
    this.#names.agent = agent;
  }

  // One line per segment; a later piece of the same segment replaces the earlier one.
  write({ speaker, segment, text, final, interrupted }) {
    let line = this.#list.querySelector(`[data-segment="${CSS.escape(segment)}"]`);
    if (!line) {
      line = document.createElement("li");
      line.dataset.segment = segment;
      line.dataset.speaker = speaker;
      line.dir = "auto";
      this.#list.append(line);
    }
    line.dataset.final = final;
    line.ariaBusy = !final; // read aloud once, when it is whole
    if (final && !text) return line.remove(); // nobody heard it
    const who = line.firstChild ?? this.#nameplate(speaker);
    line.replaceChildren(who, document.createTextNode(interrupted ? `${text} —` : text));
    this.#list.scrollTop = this.#list.scrollHeight;
  }

  #nameplate(speaker) {
    const who = document.createElement("small");
    who.dir = "auto"; // of its own: the line's direction is that of what was said
    who.textContent = this.#names[speaker];
    return who;
  }

  // Adds to the agent's last line how long it took.
  time(text) {
    const [last] = [...this.#list.querySelectorAll('[data-speaker="agent"] small')].slice(-1);
    if (last && !last.dataset.timed) {
      last.dataset.timed = true;
      last.append(` · ${text}`);
    }
  }

  get text() {
    const said = (line) => `${this.#names[line.dataset.speaker]}: ${line.lastChild.textContent}\n`;
    return [...this.#list.children].map(said).join("");
  }
}

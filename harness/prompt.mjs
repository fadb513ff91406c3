// R45: an agent without a system prompt gets Pi's own. Pi renders it for the tools of the agent; the
// section that names documentation files of this machine is cut, and so is the working directory,
// which Pi adds again behind any prompt.

const CUT = ["docs", "cwd"];

/** `render(names)` gives Pi's prompt for these tools; each list is rendered once. */
export class DefaultPrompts {
    #render;
    #known = new Map();

    constructor(render) {
        this.#render = render;
    }

    async forTools(names) {
        const key = names.join(" ");
        if (!this.#known.has(key)) {
            this.#known.set(key, cutSections(await this.#render(names)));
        }
        return this.#known.get(key);
    }
}

export function cutSections(prompt) {
    let text = prompt;
    for (const name of CUT) {
        const start = text.indexOf(`<${name}>\n`);
        const end = text.indexOf(`\n</${name}>`, start);
        if (start < 0 || end < 0) {
            throw new Error(`Pi's default prompt has no ${name} section: was Pi upgraded?`);
        }
        text = text.slice(0, start) + text.slice(end + `\n</${name}>`.length);
    }
    return text.replace(/\n{3,}/g, "\n\n").trim();
}

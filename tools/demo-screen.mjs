// What the demo shows: a session's events as a person likes to read them. Colours only on a terminal.
const RESULT_LINES = 30;
const INPUT_LINES = 8;

export class Screen {
    #out;
    #colour;
    #open = null; // the event id whose text is streaming
    #streamed = new Set(); // events whose text was shown as it came

    constructor(out) {
        this.#out = out;
        this.#colour = out.isTTY && !process.env.NO_COLOR;
    }

    title({ model, scripted }) {
        this.#line(this.#bold("Pi Managed Backend: a real Pi agent, in a real sandbox"));
        this.#line(scripted
            ? this.#dim("No model key in the environment: the bundled scripted model plays the model's part. Pi, "
                + "the tools and the sandbox are real.\n"
                + "With ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY set, that provider is used.")
            : this.#dim(`Model: ${model.provider}/${model.id}`));
    }

    task(text) {
        this.#line(`\n${this.#bold("Task")}\n${indent(text)}\n`);
    }

    show(type, event) {
        const show = {
            "event_start": () => this.#start(event),
            "event_delta": () => this.#delta(event),
            "event_discarded": () => this.#line(this.#dim("  (that answer was cut off; it is asked for again)")),
            "agent.thinking": () => this.#thinking(event),
            "agent.message": () => this.#message(event),
            "agent.tool_use": () => this.#toolUse(event),
            "agent.tool_result": () => this.#toolResult(event),
            "session.error": () => this.#line(this.#red(`! ${event.error?.message ?? "an error"}`)),
        }[type];
        show?.();
    }

    #start(event) {
        if (event.eventType === "agent.thinking") {
            this.#line(this.#dim("    thinking…"));
        }
    }

    #delta(event) {
        if (this.#open !== event.eventId) {
            this.#endText();
            this.#open = event.eventId;
            this.#streamed.add(event.eventId);
            this.#out.write(this.#cyan("Pi  "));
        }
        this.#out.write((event.delta?.text ?? "").replaceAll("\n", "\n    "));
    }

    #thinking(event) {
        this.#line(this.#dim(indent(`(thought: ${event.text ?? ""})`)));
    }

    #message(event) {
        if (this.#streamed.has(event.id)) {
            this.#endText();
        } else {
            this.#line(this.#cyan("Pi  ") + textOf(event).replaceAll("\n", "\n    "));
        }
    }

    #toolUse(event) {
        const { name, input = {} } = event;
        const { path, command, content, ...rest } = input;
        const what = command ?? path ?? JSON.stringify(rest);
        this.#line(`\n${this.#yellow(`▸ ${name}`)}  ${what}`);
        if (content !== undefined) {
            this.#line(this.#dim(indent(firstLines(content, INPUT_LINES))));
        }
    }

    #toolResult(event) {
        const text = indent(firstLines(textOf(event).trimEnd(), RESULT_LINES));
        this.#line(event.isError ? this.#red(text) : this.#green(text));
        this.#line("");
    }

    summary(run) {
        const { usage } = run;
        const tokens = `${usage.inputTokens + usage.cacheReadInputTokens + usage.cacheCreationInputTokens} in, `
            + `${usage.outputTokens} out`;
        const rows = [
            ["checked", `the program ran in the sandbox and printed: ${run.line}`],
            ["files made", run.files.join(", ")],
            ["sandbox", `${run.sandbox.provider}, limits ${run.sandbox.limits}; ready in ${ms(run.sandboxMs)}`],
            ["time", `first token ${ms(run.firstTokenMs)}, all ${ms(run.totalMs)}`],
            ["tokens", `${tokens}; ${usage.costUsd ? `$${usage.costUsd.toFixed(4)}` : "no price known"}`],
            ["log", run.file],
            ["service log", run.serviceLog],
        ];
        this.#line(`\n${this.#bold("Done")}`);
        rows.forEach(([name, text]) => this.#line(`  ${name.padEnd(12)}${text}`));
        this.#line(`\n${this.#bold("Try next")}
  build/pi-managed serve --data ${run.data}
      the service again, with this session in it (stop it with Ctrl-C)
  build/pi-managed why last --data ${run.data}
      while it runs: what happened, and how long each part took
  build/pi-managed export ${run.session.id} --data ${run.data} --output run.jsonl
      while it runs: the session's log as a file …
  build/runtime/node/bin/node build/runtime/pi/dist/bundle/cli.js --session run.jsonl
      … which real Pi opens and goes on with, here on your machine`);
    }

    warn(text) {
        this.#line(this.#red(`! ${text}`));
    }

    failure(text) {
        this.#line(this.#red(`\nThe demo failed: ${text}`));
    }

    #endText() {
        if (this.#open !== null) {
            this.#out.write("\n");
            this.#open = null;
        }
    }

    #line(text) {
        this.#endText();
        this.#out.write(`${text}\n`);
    }

    #paint(code, text) {
        return this.#colour ? `\x1b[${code}m${text}\x1b[0m` : text;
    }
    #bold = (text) => this.#paint(1, text);
    #dim = (text) => this.#paint(2, text);
    #red = (text) => this.#paint(31, text);
    #green = (text) => this.#paint(32, text);
    #yellow = (text) => this.#paint(33, text);
    #cyan = (text) => this.#paint(36, text);
}

function textOf(event) {
    return (event.content ?? []).map((block) => block.text ?? `[${block.type}]`).join("");
}

function indent(text) {
    return text.split("\n").map((line) => `    ${line}`).join("\n");
}

function firstLines(text, count) {
    const lines = text.split("\n");
    const more = lines.length - count;
    return more > 0 ? `${lines.slice(0, count).join("\n")}\n… ${more} more lines` : text;
}

function ms(value) {
    if (!Number.isFinite(value)) {
        return "unknown";
    }
    return value < 1000 ? `${Math.round(value)} ms` : `${(value / 1000).toFixed(1)} s`;
}

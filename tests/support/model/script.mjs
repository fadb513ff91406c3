// The script language of the scripted model, and the turns it makes.
//
// A script stands in the text of a user message, from its first directive word on:
//
//   script    = turn { "THEN" turn }        one turn = one answer of the model; the next turn is
//                                           used once the results of this turn's tools are back
//   turn      = { directive }
//   directive = THINK text                  think (a signed or encrypted block where there is one)
//             | SAY text                    answer with text; $RESULT = what the tools returned
//             | CALL call { ";;" call }     call tools; call = tool-name [ JSON object ]
//             | SLOW ms                     wait this long before every token of the turn
//             | HANG [EARLY | AT n]         stall here until the client leaves or release();
//                                           EARLY: before the first byte of the reply; AT n: after
//                                           n bytes of the body
//             | CUT EARLY                   drop the connection before the first byte of the reply
//             | CUT [ARGS | AT n] [CLEAN]   drop the connection here; ARGS: half way through the
//                                           arguments of the turn's last call; AT n: after n bytes
//                                           of the body; CLEAN: end the body properly but without
//                                           the protocol's last event
//             | FAIL status [seconds] [HTML | EMPTY]
//                                           answer with this HTTP status, and Retry-After; HTML:
//                                           with a page, as proxies do; EMPTY: with no body
//             | ERROR text                  the protocol's own error in the middle of the stream
//             | RAW JSON string             put these bytes (one a character) into the stream
//             | LONG n [JUNK]               one event whose text has n letters; JUNK: a data line of
//                                           n letters that is no JSON
//             | PINGS n                     n signs of life: the protocol's pings, or comments
//             | TRAIL [BEYOND] JSON string  bytes after the last event; BEYOND: after the end of the
//                                           HTTP message
//             | TYPE media-type             the Content-Type of the stream
//             | CHUNK n                     write the body in pieces of n bytes
//             | TIMES n                     what goes wrong in this turn (all but CHUNK and PINGS)
//                                           does so only the first n times this very request comes
//             | USAGE JSON object           {input,output,cacheRead,cacheWrite,reasoning}: report
//                                           these numbers (disjoint: input excludes the cache)
//             | STOP length                 end as if the token limit had been reached
//   text      = JSON string | everything up to the next directive word
//
// Directive words are upper case and stand between blanks. Examples:
//   CALL bash {"command":"date"} THEN SAY It is $RESULT
//   THINK two files SAY Reading. CALL read {"path":"a"} ;; read {"path":"b"} THEN SAY "DONE, THEN?"
//   FAIL 529 1 TIMES 2 SAY made it
//
// Which turn is due is read from the conversation alone: the number of answers after the newest
// user message that holds a script. A later user message without a directive (a steering note, a
// note about a restart) lets the script go on, except that a HANG or CUT it came after counts as
// over. Without a script, or after its last turn, the model answers with a short text.

const WORDS = ["THEN", "THINK", "SAY", "CALL", "SLOW", "HANG", "CUT", "FAIL", "ERROR", "RAW", "LONG",
    "PINGS", "TRAIL", "TYPE", "CHUNK", "TIMES", "USAGE", "STOP"];
const FAULTS = ["hang", "cut", "error", "raw", "long"];
const WORD = new RegExp(`(?<=^|\\s)(?:${WORDS.join("|")})(?=\\s|$)`, "g");

export class ScriptError extends Error {}

/** Position of the first directive word in text, or -1. */
export function scriptStart(text) {
    WORD.lastIndex = 0;
    return WORD.exec(text)?.index ?? -1;
}

/** text with a script → its turns. */
export function parseScript(text) {
    const reader = new Reader(text, Math.max(0, scriptStart(text)));
    const turns = [newTurn()];
    for (reader.blanks(); !reader.ended(); reader.blanks()) {
        const word = reader.word();
        if (word === "THEN") {
            turns.push(newTurn());
        } else if (Object.hasOwn(DIRECTIVES, word)) {
            DIRECTIVES[word](reader, turns.at(-1));
        } else {
            reader.fail(`expected a directive (${WORDS.join(" ")}), found ${JSON.stringify(word)}`);
        }
    }
    turns.forEach(placeCutInArguments);
    return turns;
}

function newTurn() {
    return {
        parts: [], slowMs: 0, early: null, fail: null, times: Infinity, usage: null, stop: null,
        chunk: Infinity, ...NO_FAULTS,
    };
}

/** Faults that belong to the whole answer; those at one place in it are parts. */
const NO_FAULTS = { cutAt: null, hangAt: null, trail: null, type: null };

/** The turn as it goes when nothing goes wrong. */
export function withoutFaults(turn) {
    const parts = turn.parts
        .filter((part) => !FAULTS.includes(part.kind))
        .map(({ cut, ...part }) => part);
    return { ...turn, early: null, fail: null, parts, ...NO_FAULTS };
}

export function isFault(part) {
    return FAULTS.includes(part.kind);
}

const DIRECTIVES = {
    THINK: (r, turn) => turn.parts.push({ kind: "think", text: r.text() }),
    SAY: (r, turn) => turn.parts.push({ kind: "say", text: r.text() }),
    ERROR: (r, turn) => turn.parts.push({ kind: "error", text: r.text() }),
    SLOW: (r, turn) => (turn.slowMs = r.number("SLOW needs milliseconds")),
    TIMES: (r, turn) => (turn.times = r.number("TIMES needs a count")),
    USAGE: (r, turn) => (turn.usage = JSON.parse(r.object())),
    CALL(r, turn) {
        do {
            const name = r.word();
            const text = r.peek("{") ? r.object() : "{}";
            turn.parts.push({ kind: "call", name, text });
        } while (r.skip(";;"));
    },
    FAIL(r, turn) {
        const status = r.number("FAIL needs an HTTP status");
        turn.fail = { status, retryAfter: r.optionalNumber() };
        if (r.skip("HTML")) {
            Object.assign(turn.fail, HTML_PAGE);
        } else if (r.skip("EMPTY")) {
            turn.fail.body = "";
        }
    },
    RAW: (r, turn) => turn.parts.push({ kind: "raw", text: r.quoted() }),
    PINGS: (r, turn) => turn.parts.push({ kind: "pings", count: r.number("PINGS needs a count") }),
    TYPE: (r, turn) => (turn.type = r.word()),
    CHUNK: (r, turn) => (turn.chunk = Math.max(1, r.number("CHUNK needs a number of bytes"))),
    LONG(r, turn) {
        const length = r.number("LONG needs a number of letters");
        turn.parts.push({ kind: "long", length, junk: r.skip("JUNK") });
    },
    TRAIL(r, turn) {
        const beyond = r.skip("BEYOND");
        turn.trail = { text: r.quoted(), beyond };
    },
    HANG(r, turn) {
        if (r.skip("EARLY")) {
            turn.early = "hang";
        } else if (r.skip("AT")) {
            turn.hangAt = r.number("HANG AT needs a number of bytes");
        } else {
            turn.parts.push({ kind: "hang" });
        }
    },
    CUT(r, turn) {
        if (r.skip("EARLY")) {
            turn.early = "cut";
            return;
        }
        const inArguments = r.skip("ARGS");
        const at = r.skip("AT") ? r.number("CUT AT needs a number of bytes") : undefined;
        const cut = r.skip("CLEAN") ? "clean" : "reset";
        if (inArguments) {
            turn.cutArguments = cut;
        } else if (at !== undefined) {
            turn.cutAt = { bytes: at, how: cut };
        } else {
            turn.parts.push({ kind: "cut", cut });
        }
    },
    STOP(r, turn) {
        turn.stop = r.word();
        if (turn.stop !== "length") {
            r.fail("STOP knows only `length`");
        }
    },
};

const HTML_PAGE = {
    type: "text/html",
    body: "<html><head><title>Bad gateway</title></head><body><h1>Bad gateway</h1></body></html>\n",
};

function placeCutInArguments(turn) {
    if (!turn.cutArguments) {
        return;
    }
    const call = turn.parts.findLast((part) => part.kind === "call");
    if (!call) {
        throw new ScriptError("script: CUT ARGS needs a CALL in the same turn");
    }
    call.cut = turn.cutArguments;
}

class Reader {
    constructor(text, at) {
        this.source = text;
        this.at = at;
    }

    fail(message) {
        throw new ScriptError(`script: ${message}, at character ${this.at}`);
    }

    ended() {
        return this.at >= this.source.length;
    }

    blanks() {
        this.match(/\s*/y);
    }

    match(pattern) {
        pattern.lastIndex = this.at;
        const found = pattern.exec(this.source);
        if (found) {
            this.at = pattern.lastIndex;
        }
        return found?.[0];
    }

    peek(prefix) {
        this.blanks();
        return this.source.startsWith(prefix, this.at);
    }

    skip(prefix) {
        const found = this.peek(prefix);
        if (found) {
            this.at += prefix.length;
        }
        return found;
    }

    word() {
        this.blanks();
        return this.match(/[^\s{]+/y) ?? this.fail("expected a word");
    }

    optionalNumber() {
        this.blanks();
        const digits = this.match(/\d+(?=\s|$)/y);
        return digits === undefined ? undefined : Number(digits);
    }

    number(complaint) {
        return this.optionalNumber() ?? this.fail(complaint);
    }

    text() {
        this.blanks();
        if (this.peek('"')) {
            return this.quoted();
        }
        WORD.lastIndex = this.at;
        const end = WORD.exec(this.source)?.index ?? this.source.length;
        const text = this.source.slice(this.at, end).trim();
        this.at = end;
        return text;
    }

    quoted() {
        this.blanks();
        const literal = this.match(/"(?:[^"\\]|\\.)*"/sy) ?? this.fail("unfinished string");
        try {
            return JSON.parse(literal);
        } catch {
            return this.fail(`not a JSON string: ${literal}`);
        }
    }

    /** A JSON object, checked, returned as it was written (models do not normalise blanks). */
    object() {
        this.blanks();
        const start = this.at;
        let depth = 0;
        do {
            const token = this.match(/"(?:[^"\\]|\\.)*"|[{}]|[^"{}]+/sy);
            depth += token === "{" ? 1 : token === "}" ? -1 : 0;
            if (token === undefined) {
                this.fail("unfinished JSON object");
            }
        } while (depth > 0);
        const text = this.source.slice(start, this.at);
        try {
            JSON.parse(text);
        } catch (error) {
            this.fail(`bad JSON object (${error.message})`);
        }
        return text;
    }
}

/**
 * A step given by a test → a turn. A step is a string in the script language (one turn), or
 * {think?, say?, calls?: [{name, args, slow?}], error?, hang?, cut?, cutArgs?, early?: "hang" | "cut",
 * fail?: {status, retryAfter?, message?, headers?, type?, body?}, cutAt?, hangAt?, trail?, type?, chunk?,
 * slow?, usage?, stop?, times?}; parts are played in this order. A step {parts: […]} gives a turn's
 * parts themselves.
 */
export function toTurn(step) {
    if (typeof step === "string") {
        return scriptStart(step) < 0 ? toTurn({ say: step }) : onlyTurn(parseScript(step));
    }
    if (!step || typeof step !== "object") {
        throw new ScriptError(`script: a step must be a string or an object, not ${step}`);
    }
    const turn = newTurn();
    turn.parts.push(...step.parts ?? []);
    const add = (kind, text) => text !== undefined && turn.parts.push({ kind, text });
    add("think", step.think);
    add("say", step.say);
    for (const { name, args, slow } of step.calls ?? []) {
        turn.parts.push({ kind: "call", name, text: JSON.stringify(args ?? {}), slowMs: slow });
    }
    add("error", step.error);
    if (step.hang) {
        turn.parts.push({ kind: "hang" });
    }
    if (step.cut) {
        turn.parts.push({ kind: "cut", cut: step.cut === "clean" ? "clean" : "reset" });
    }
    turn.cutArguments = step.cutArgs && (step.cutArgs === "clean" ? "clean" : "reset");
    placeCutInArguments(turn);
    return Object.assign(turn, {
        slowMs: step.slow ?? 0,
        early: step.early ?? null,
        fail: step.fail ?? null,
        times: step.times ?? Infinity,
        usage: step.usage ?? null,
        stop: step.stop ?? null,
        chunk: step.chunk ?? Infinity,
        cutAt: step.cutAt === undefined ? null : { bytes: step.cutAt, how: step.how ?? "reset" },
        hangAt: step.hangAt ?? null,
        trail: step.trail ?? null,
        type: step.type ?? null,
    });
}

function onlyTurn(turns) {
    if (turns.length !== 1) {
        throw new ScriptError("script: a step is one turn; THEN belongs into the list of steps");
    }
    return turns[0];
}

/** Pi's request for a summary has no tools and shows the conversation as text. */
export function isSummaryRequest({ tools, userText }) {
    return tools.length === 0 && userText.startsWith("<conversation>");
}

/** The default script: what the directives in the conversation ask for next. */
export function directiveTurn(conversation) {
    const { messages } = conversation;
    if (isSummaryRequest(conversation)) {
        return toTurn({ say: "## Goal\nThe user ran a scripted task; see the kept messages." });
    }
    const at = messages.findLastIndex((m) => m.role === "user" && scriptStart(m.text) >= 0);
    if (at < 0) {
        return toTurn({ say: plainAnswer(conversation) });
    }
    const later = messages.slice(at + 1);
    const turns = parseScript(messages[at].text);
    let step = later.filter((m) => m.role === "assistant").length;
    if (turns[step] && later.at(-1)?.role === "user" && isEndless(turns[step])) {
        step += 1;
    }
    if (!turns[step]) {
        return toTurn({ say: plainAnswer(conversation) });
    }
    return fillResults(turns[step], conversation);
}

function isEndless(turn) {
    const stalls = turn.parts.some((p) => p.kind === "hang" || p.kind === "cut" || p.cut)
        || turn.hangAt !== null || turn.cutAt !== null;
    return (stalls || turn.early !== null) && turn.times === Infinity;
}

function plainAnswer({ messages, userText }) {
    const last = messages.at(-1);
    if (last?.role === "tool") {
        return `Done. The last tool returned: ${shorten(resultText(last))}`;
    }
    return `Hello from the scripted model. You said: ${shorten(userText)}`;
}

function shorten(text) {
    const points = [...text];
    return points.length <= 400 ? text : `${points.slice(0, 400).join("")}…`;
}

function resultText(toolMessage) {
    return toolMessage?.results.map((r) => r.text).join("\n") ?? "";
}

function fillResults(turn, { messages }) {
    const results = resultText(messages.findLast((m) => m.role === "tool"));
    const fill = (part) => part.kind === "say"
        ? { ...part, text: part.text.replaceAll("$RESULT", () => results) }
        : part;
    return { ...turn, parts: turn.parts.map(fill) };
}

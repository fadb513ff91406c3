// The scripted model server: the script language, faults, refusals, scripts given by a test.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, rmSync, mkdtempSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { APIS, CLIENTS, frames, parseFrames, post, readAll } from "./model-client.mjs";
import { parseScript, ScriptError, toTurn } from "./model/script.mjs";
import { pieces } from "./model/tokens.mjs";
import { startModelServer } from "./model-server.mjs";

function assistantCall(id) {
    return { role: "assistant", tool_calls: [{ id, function: { name: "t", arguments: "{}" } }] };
}

let server;
before(async () => (server = await startModelServer()));
after(() => server.close());

describe("script language", () => {
    const kinds = (turn) => turn.parts.map((part) => `${part.kind}:${part.text ?? part.cut ?? ""}`);

    test("directives, quoted text and THEN", () => {
        const [first, second, third] = parseScript(
            'please THINK a SAY "x THEN \\"y\\"" CALL t {"a":"} THEN {"} ;; u SLOW 5\nTHEN HANG '
            + "THEN FAIL 529 3 TIMES 2");
        assert.deepEqual(kinds(first),
            ["think:a", 'say:x THEN "y"', 'call:{"a":"} THEN {"}', "call:{}"]);
        assert.equal(first.slowMs, 5);
        assert.deepEqual(kinds(second), ["hang:"]);
        assert.deepEqual(third.fail, { status: 529, retryAfter: 3 });
        assert.equal(third.times, 2);
    });

    test("CUT ARGS marks the last call, wherever it stands", () => {
        const [turn] = parseScript("CUT ARGS CLEAN CALL a {} ;; b {}");
        assert.deepEqual(turn.parts.map(({ name, cut }) => [name, cut]),
            [["a", undefined], ["b", "clean"]]);
    });

    for (const bad of ["RAW x", "LONG", "CUT AT", "TRAIL y", "CALL", "CALL t {",
        "CALL t {'a':1}", "SLOW soon", "FAIL", "CUT ARGS",
        "CALL t {} and more", 'SAY "open', "STOP early"]) {
        test(`is refused: ${bad}`, () => {
            assert.throws(() => parseScript(bad), ScriptError);
        });
    }

    test("a bad script in a message is a 400 that names it", async () => {
        const response = await post(server, "openai-completions", "CALL bash {oops");
        assert.equal(response.status, 400);
        assert.match((await response.json()).error.message, /^script: unfinished JSON object/);
    });

    test("a step is one turn", () => {
        assert.throws(() => toTurn("SAY a THEN SAY b"), ScriptError);
        const step = { say: "s", think: "t", calls: [{ name: "n" }], hang: true };
        assert.deepEqual(kinds(toTurn(step)), ["think:t", "say:s", "call:{}", "hang:"]);
    });

    test("pieces lose nothing and cut no code point", () => {
        const texts = ["", " a  b\n\n", "x".repeat(50), "😀".repeat(20), "é ü\tß 漢字漢字漢字漢字"];
        for (const text of texts) {
            const cut = pieces(text);
            assert.equal(cut.join(""), text);
            assert.ok(cut.every((piece) => piece.isWellFormed?.() ?? true));
        }
    });
});

describe("conversations", () => {
    const say = async (messages) => {
        const response = await fetch(`${server.url}/v1/chat/completions`, {
            method: "POST",
            body: JSON.stringify({ model: "m", stream: true, messages }),
        });
        const text = await response.text();
        assert.equal(response.status, 200, text);
        return parseFrames(text).map(({ data }) => data.choices?.[0]?.delta.content ?? "").join("");
    };
    const user = (content) => ({ role: "user", content });
    const called = assistantCall("c1");
    const result = { role: "tool", tool_call_id: "c1", content: "42" };

    test("the next turn is used after the results, and quotes them", async () => {
        assert.equal(await say([user("CALL t {} THEN SAY <$RESULT>"), called, result]), "<42>");
    });

    test("a later message without directives lets the script go on", async () => {
        const messages = [user("CALL t {} THEN SAY end"), called, result, user("(restarted)")];
        assert.equal(await say(messages), "end");
    });

    test("a text block added to the message does not change the script", async () => {
        const blocks = [{ type: "text", text: "CALL t {} THEN SAY end" },
            { type: "text", text: "Reminder: be kind." }];
        assert.equal(await say([user(blocks), called, result]), "end");
    });

    test("a later message ends a HANG", async () => {
        assert.match(await say([user("HANG"), user("hello there")]), /You said: hello there$/);
        assert.equal(await say([user("HANG THEN SAY back"), user("(restarted)")]), "back");
    });

    test("a newer script replaces the older one", async () => {
        assert.equal(await say([user("SAY a THEN SAY b"), { role: "assistant", content: "a" },
            user("SAY new")]), "new");
    });

    test("without a script, or after it, the answer says what came in", async () => {
        assert.match(await say([user("hi")]), /You said: hi$/);
        assert.match(await say([user("CALL t {}"), called, result]), /returned: 42$/);
    });

    test("usage: what the last request held is read from the cache", async () => {
        const ask = async (messages) => {
            const body = { ...CLIENTS["anthropic-messages"].body("x"), messages };
            const marked = JSON.stringify(body).replace("}", ',"cache_control":{}}');
            const response = await fetch(`${server.url}/v1/messages`,
                { method: "POST", body: marked });
            return (await frames(response))[0].data.message.usage;
        };
        const first = await ask([user("SAY one")]);
        const answer = { role: "assistant", content: "one" };
        const second = await ask([user("SAY one"), answer, user("hi")]);
        assert.equal(first.cache_read_input_tokens, 0);
        assert.ok(first.cache_creation_input_tokens > 0);
        assert.equal(second.cache_read_input_tokens,
            first.input_tokens + first.cache_creation_input_tokens);
    });
});

describe("faults", () => {
    for (const api of APIS) {
        test(`${api}: FAIL gives the status, Retry-After and the provider's error`, async () => {
            const response = await post(server, api, "FAIL 429 7");
            assert.equal(response.status, 429);
            assert.equal(response.headers.get("retry-after"), "7");
            assert.equal((await response.json()).error.message, "scripted failure 429");
        });

        test(`${api}: CUT breaks the body after the text`, async () => {
            const { text, broken } = await readAll(await post(server, api, "SAY one two CUT"));
            assert.match(text, / two/);
            assert.ok(broken);
        });

        test(`${api}: CUT ARGS sends half of the arguments`, async () => {
            const long = `{"command":"${"abcdefg ".repeat(20)}END"}`;
            const response = await post(server, api, `CALL bash ${long} CUT ARGS`);
            const { text, broken } = await readAll(response);
            assert.match(text, /abcdefg/);
            assert.doesNotMatch(text, /END/);
            assert.ok(broken);
        });

        test(`${api}: CUT CLEAN ends the body without the last event`, async () => {
            const { text, broken } = await readAll(await post(server, api, "SAY one CUT CLEAN"));
            assert.match(text, /one/);
            assert.doesNotMatch(text, /\[DONE\]|message_stop|response\.completed|finishReason/);
            assert.ok(!broken);
        });

        test(`${api}: HANG stalls until release, then the answer ends whole`, async () => {
            const response = await post(server, api, `SAY hanging ${api} HANG`);
            const isIt = (r) => r.userText.includes(`hanging ${api}`);
            const request = await server.waitForRequest(isIt);
            await request.stalled;
            assert.equal(request.outcome, undefined);
            server.release();
            assert.equal(await request.done, "finished");
            const { text, broken } = await readAll(response);
            assert.ok(!broken);
            assert.match(text, /\[DONE\]|message_stop|response\.completed|finishReason/);
        });

        test(`${api}: a client that leaves a HANG is noticed`, async () => {
            const client = new AbortController();
            await post(server, api, `SAY leaving ${api} HANG`, { signal: client.signal });
            const isIt = (r) => r.userText.includes(`leaving ${api}`);
            const request = await server.waitForRequest(isIt);
            await request.stalled;
            client.abort();
            assert.equal(await request.done, "left");
        });

        test(`${api}: ERROR comes in the middle of the stream`, async () => {
            const { text } = await readAll(await post(server, api, "SAY one ERROR overloaded now"));
            assert.match(text, /one/);
            const last = parseFrames(text).at(-1).data;
            assert.equal(last.error?.message ?? last.message, "overloaded now");
        });
    }

    test("CUT EARLY drops the connection before the first byte", async () => {
        await assert.rejects(post(server, "openai-completions", "CUT EARLY"), /fetch failed/);
    });

    test("HANG EARLY holds back the whole reply, and one request can be released", async () => {
        const reply = post(server, "openai-completions", "HANG EARLY SAY at last");
        const request = await server.waitForRequest((r) => r.userText.startsWith("HANG EARLY"));
        await request.stalled;
        request.release();
        assert.match(await (await reply).text(), /last/);
    });

    test("TIMES: the fault comes n times, then the answer without it", async () => {
        const script = "FAIL 503 TIMES 2 SAY third time";
        const statuses = [];
        for (let i = 0; i < 3; i += 1) {
            const response = await post(server, "openai-completions", script);
            statuses.push(response.status);
            if (response.status === 200) {
                assert.match(await response.text(), /third/);
            }
        }
        assert.deepEqual(statuses, [503, 503, 200]);
    });

    for (const api of APIS) {
        test(`${api}: CUT AT ends the body after any number of bytes`, async () => {
            const whole = await (await post(server, api, "SAY ab")).text();
            const total = Buffer.byteLength(whole);
            for (const at of [0, 1, 20, total - 1, total]) {
                const cut = await readAll(await post(server, api, `SAY ab CUT AT ${at}`));
                assert.equal(Buffer.byteLength(cut.text), at);
                assert.ok(cut.broken);
                const clean = await readAll(await post(server, api, `SAY ab CUT AT ${at} CLEAN`));
                assert.equal(Buffer.byteLength(clean.text), at);
                assert.ok(!clean.broken);
            }
            const beyond = await readAll(await post(server, api, `SAY ab CUT AT ${total + 1}`));
            assert.ok(!beyond.broken);
            assert.equal(server.requests.at(-1).outcome, "finished");
            assert.equal(server.requests.at(-1).sentBytes, total);
        });

        test(`${api}: RAW, LONG, PINGS and TRAIL stand where they were put`, async () => {
            const plain = parseFrames(await (await post(server, api, "SAY one")).text());
            const { text } = await readAll(await post(server, api,
                'SAY one RAW "data: {not json\\n\\n" PINGS 2 LONG 70000 LONG 3000 JUNK TRAIL "data: x"'));
            assert.match(text, /one[^]*data: \{not json\n\n/);
            assert.equal(text.match(/ping/g).length, api === "anthropic-messages" ? 6 : 2);
            assert.ok(text.split("\n").some((line) => line.includes("x".repeat(70000))));
            assert.ok(text.split(/\r?\n/).includes(`data: ${"x".repeat(3000)}`));
            assert.ok(text.endsWith("\ndata: x"));
            assert.ok(plain.length > 1);
        });

        test(`${api}: CHUNK changes how the bytes come, not which`, async () => {
            const ids = /"(id|item_id|responseId|signature)":"[^"]*"|"created(_at)?":\d+/g;
            const bodies = await Promise.all(["CHUNK 9", "CHUNK 1", "CHUNK 7"].map(async (how) =>
                (await (await post(server, api, `SAY same ${how}`)).text()).replace(ids, "")));
            assert.equal(bodies[1], bodies[0]);
            assert.equal(bodies[2], bodies[0]);
        });

        test(`${api}: HANG AT stalls after so many bytes, then the rest comes`, async () => {
            const text = `SAY stalls ${api} HANG AT 30`;
            const response = await post(server, api, text);
            const request = await server.waitForRequest((r) => r.userText === text);
            await request.stalled;
            const reader = response.body.getReader();
            let got = 0;
            while (got < 30) {
                got += (await reader.read()).value.length;
            }
            assert.equal(got, 30);
            request.release();
            assert.equal(await request.done, "finished");
            await reader.cancel();
        });
    }

    test("FAIL with HTML and EMPTY gives what a proxy would", async () => {
        const page = await post(server, "openai-completions", "FAIL 502 HTML");
        assert.match(page.headers.get("content-type"), /^text\/html/);
        assert.match(await page.text(), /<h1>Bad gateway/);
        const empty = await post(server, "openai-completions", "FAIL 429 3 EMPTY");
        assert.equal(empty.headers.get("retry-after"), "3");
        assert.equal(await empty.text(), "");
    });

    test("TYPE changes the Content-Type only", async () => {
        const response = await post(server, "openai-completions", "TYPE text/html SAY hi");
        assert.equal(response.headers.get("content-type"), "text/html");
        assert.match(await response.text(), /"hi"/);
    });

    test("TRAIL BEYOND comes after the end of the HTTP message", async () => {
        const body = JSON.stringify(CLIENTS["openai-completions"].body('SAY hi TRAIL BEYOND "more"'));
        const socket = connect(new URL(server.url).port, "127.0.0.1").setEncoding("latin1");
        socket.write(`POST /v1/chat/completions HTTP/1.1\r\nhost: m\r\n`
            + `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
        let text = "";
        for await (const part of socket) {
            text += part;
            if (text.endsWith("more")) {
                break;
            }
        }
        assert.match(text, /\r\n0\r\n\r\nmore$/);
    });

    test("what goes wrong at a byte or in the stream counts for TIMES too", async () => {
        const script = 'CUT AT 5 RAW "x" TRAIL "y" TYPE text/plain TIMES 1 SAY then well';
        assert.ok((await readAll(await post(server, "openai-completions", script))).broken);
        const second = await post(server, "openai-completions", script);
        assert.ok((await frames(second)).length > 2);
    });

    test("STOP length ends at the token limit", async () => {
        const all = await frames(await post(server, "anthropic-messages", "SAY x STOP length"));
        assert.equal(all.at(-2).data.delta.stop_reason, "max_tokens");
    });

});

describe("refusals", () => {
    const cases = [
        ["not JSON", "/v1/chat/completions", "{", /not JSON/],
        ["no messages", "/v1/chat/completions", { model: "m", stream: true }, /no messages/],
        ["no model", "/v1/responses", { stream: true, input: "x" }, /no model/],
        ["an unanswered call", "/v1/chat/completions", {
            model: "m", stream: true, messages: [
                assistantCall("c"), { role: "user", content: "x" }],
        }, /tool calls \[c\] are answered by \[\]/],
        ["a stray result", "/v1/messages", {
            model: "m", stream: true, max_tokens: 1, messages: [{ role: "user", content: [
                { type: "tool_result", tool_use_id: "c", content: "x" }] }],
        }, /follows no tool call/],
        ["forged thinking", "/v1/messages", {
            model: "m", stream: true, max_tokens: 1, messages: [{ role: "assistant", content: [
                { type: "thinking", thinking: "x", signature: "forged" }] }],
        }, /invalid signature/],
    ];
    for (const [name, target, body, message] of cases) {
        test(name, async () => {
            const response = await fetch(server.url + target, {
                method: "POST", body: typeof body === "string" ? body : JSON.stringify(body),
            });
            assert.equal(response.status, 400);
            assert.match((await response.json()).error.message, message);
        });
    }

    test("with apiKey, each protocol's own header must carry it", async () => {
        const server = await startModelServer({ apiKey: "k1" });
        const headers = {
            "openai-completions": { authorization: "Bearer k1" },
            "anthropic-messages": { "x-api-key": "k1" },
            "openai-responses": { authorization: "Bearer k1" },
            "google-generative-ai": { "x-goog-api-key": "k1" },
        };
        for (const api of APIS) {
            assert.equal((await post(server, api, "SAY x")).status, 401);
            const good = await post(server, api, "SAY x", { headers: headers[api] });
            assert.equal(good.status, 200);
            await good.text();
        }
        await server.close();
    });
});

describe("scripts given by the test", () => {
    test("a list is used one step a request, and its end is an error", async () => {
        const script = ["SAY one", { say: "two" }, () => "three"];
        const server = await startModelServer({ script });
        for (const word of ["one", "two", "three"]) {
            const response = await post(server, "openai-completions", "x");
            assert.match(await response.text(), new RegExp(`"content":"${word}"`));
        }
        assert.equal((await post(server, "openai-completions", "x")).status, 400);
        server.setScript((request) => (request.userText === "mine" ? "SAY yes" : undefined));
        const answer = async (text) => (await post(server, "openai-responses", text)).text();
        assert.match(await answer("mine"), /"yes"/);
        assert.match(await answer("SAY no"), /"no"/);
        assert.equal(server.requests.length, 6);
        await server.close();
    });

    test("waitForRequest finds past and future ones and says what it saw", async () => {
        const future = server.waitForRequest((r) => r.userText === "SAY later");
        await (await post(server, "anthropic-messages", "SAY later")).text();
        assert.equal((await future).model, "m");
        assert.equal(await server.waitForRequest((r) => r.userText === "SAY later"), await future);
        await assert.rejects(server.waitForRequest(() => false, { timeoutMs: 1 }), /SAY later/);
    });

    test("the command line prints its address, logs, and stops on SIGTERM", async () => {
        const folder = mkdtempSync(path.join(tmpdir(), "model-server-"));
        const log = path.join(folder, "log");
        const program = fileURLToPath(new URL("model-server.mjs", import.meta.url));
        const child = spawn(process.execPath, [program, "--log", log],
            { stdio: ["ignore", "pipe", "inherit"] });
        const [line] = await once(createInterface(child.stdout), "line");
        const url = /^model server on (http:\/\/127\.0\.0\.1:\d+)$/.exec(line)[1];
        await (await post({ url }, "openai-completions", "SAY x")).text();
        child.kill("SIGTERM");
        assert.deepEqual(await once(child, "exit"), [0, null]);
        const [entry] = readFileSync(log, "utf8").trim().split("\n").map((l) => JSON.parse(l));
        assert.equal(entry.api, "openai-completions");
        rmSync(folder, { recursive: true });
    });
});

describe("the list of models", () => {
    const PATHS = {
        "openai-completions": ["/v1/models", (key) => ({ authorization: `Bearer ${key}` })],
        "openai-responses": ["/v1/models", (key) => ({ authorization: `Bearer ${key}` })],
        "anthropic-messages": ["/v1/models", (key) => ({ "x-api-key": key, "anthropic-version": "2023-06-01" })],
        "google-generative-ai": ["/v1beta/models", (key) => ({ "x-goog-api-key": key })],
    };

    for (const api of APIS) {
        test(`${api}: is for those with the key, or for all without one`, async () => {
            const [where, headers] = PATHS[api];
            const get = async (key) => (await fetch(server.url + where, { headers: headers(key) })).status;
            server.listKey = "good";
            assert.deepEqual([await get("good"), await get("bad")], [200, api === "google-generative-ai" ? 400 : 401]);
            server.listKey = undefined;
            assert.equal(await get("bad"), 200);
        });
    }
});

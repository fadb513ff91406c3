// The gateway relays byte for byte, apart from the credential. What is sent through it are the requests that the
// real Pi makes (thinking signatures, images, tool calls and results among them) and the streams that it gets.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { text as allText } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { ask, chunked, gatewayMissing, KEY, rawRequest, startGateway, startProvider } from "../support/gateway.mjs";
import { APIS, CLIENTS } from "../support/model-client.mjs";
import { startModelServer } from "../support/model-server.mjs";

const fromHere = (target) => fileURLToPath(new URL(target, import.meta.url));
const NODE = fromHere("../../build/runtime/node/bin/node");
const BUNDLE = fromHere("../../build/runtime/pi/dist/bundle/index.js");

/** Each leg of the way has its own: framing, connection management, whose key it is, compression. */
const OF_ONE_LEG = /^(host|connection|keep-alive|transfer-encoding|content-length|accept-encoding|expect)$/i;
const CREDENTIALS = /^(authorization|x-api-key|x-goog-api-key)$/i;
const PREFIX = { "openai-completions": "Bearer ", "openai-responses": "Bearer " };

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";
const PROMPTS = [
    'THINK the user wants "ünïcödé" SAY Grüße 漢字 😀 \u2028. CALL echo {"text":"\\u00e9 \\n <&>"} ;; broken {} '
        + "THEN THINK again SAY It said: $RESULT",
    "SAY And once more, please.",
];

/** The requests of a real Pi session, as the model server got them. */
async function record(model, api) {
    const child = spawn(NODE, [fromHere("../support/pi-drive.mjs"), BUNDLE],
        { stdio: ["pipe", "pipe", "inherit"], env: { PATH: process.env.PATH, HOME: "/none" } });
    const exit = once(child, "exit");
    const images = [{ type: "image", mimeType: "image/png", data: PNG }];
    const job = { api, baseUrl: model.baseUrl(api), prompts: PROMPTS, images, thinkingLevel: "medium" };
    const from = model.requests.length;
    child.stdin.end(`${JSON.stringify(job).replaceAll("\u2028", "\\u2028")}\n`); // readline takes it for a line's end
    const [reply] = await Promise.all([allText(child.stdout), exit]);
    assert.ok(JSON.parse(reply).messages.length >= 7, "Pi held its conversation");
    return model.requests.slice(from);
}

const forLeg = (headers) => headers
    .filter(([name]) => !OF_ONE_LEG.test(name) && !CREDENTIALS.test(name) && name.toLowerCase() !== "x-pi-session");

/** Every byte in `make test-full`, every seventh in `make test`. */
const FULL = process.env.PI_MANAGED_TEST_FULL === "yes";
const EVERY = FULL ? 1 : 7;

const STREAM_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

async function streamOf(model, request) {
    const response = await fetch(model.url + request.path, { method: "POST", body: request.body });
    assert.equal(response.status, 200);
    return Buffer.from(await response.arrayBuffer());
}

/** A request with this user text, as a client of the API makes it; the model is `m`. */
const requestFor = (api, text) => ({
    target: CLIENTS[api].path,
    headers: [["Content-Type", "application/json"]],
    body: JSON.stringify(CLIENTS[api].body(text)),
});

function streamFor(model, api, text) {
    const { target, body } = requestFor(api, text);
    return streamOf(model, { path: target, body });
}

const baseOf = (url, api) => url + (({ "anthropic-messages": "", "google-generative-ai": "/v1beta" })[api] ?? "/v1");

describe("the gateway relays byte for byte", { skip: gatewayMissing }, () => {
    let model;
    before(async () => (model = await startModelServer()));
    after(() => model.close());

    for (const api of APIS) {
        test(api, async (t) => {
            const recorded = await record(model, api);
            assert.equal(recorded.length, 3);
            assert.ok(recorded.some(({ body }) => body.includes(PNG)), "an image is among it");
            const streams = [];
            for (const request of recorded) {
                streams.push(await streamOf(model, request));
            }
            const HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-Odd:  kept \r\n"
                + "request-id: req_1\r\nDate: Mon, 30 Nov 2026 01:02:03 GMT\r\nSet-Cookie: a=1\r\n"
                + "Set-Cookie: b=2\r\nTransfer-Encoding: chunked\r\n\r\n";
            const provider = await startProvider(t, () => {
                const bytes = streams[provider.requests.length - 1];
                return { head: HEAD, pieces: chunked(bytes, [1, 7, 300, 2, 5000]) };
            });
            const base = new URL(model.baseUrl(api)).pathname.replace(/\/$/, "");
            const gateway = await startGateway(t, { baseUrl: provider.url + base, api, model: "scripted-1" });
            for (const [i, request] of recorded.entries()) {
                const sent = Object.entries(request.headers).filter(([name]) => !OF_ONE_LEG.test(name));
                const answer = await ask(gateway.socket,
                    rawRequest({ target: request.path, headers: sent, body: request.body }));
                assert.equal(answer.status, 200, answer.body.toString());
                assert.ok(!answer.broken);
                assert.ok(answer.body.equals(streams[i]), "the stream is the provider's");
                const seen = provider.requests[i];
                assert.equal(seen.first, `POST ${request.path} HTTP/1.1`);
                assert.deepEqual(forLeg(seen.headers), forLeg(sent));
                assert.ok(seen.body.equals(Buffer.from(request.body)), "the request is Pi's");
                const keys = seen.headers.filter(([name]) => CREDENTIALS.test(name));
                assert.deepEqual(keys.map(([, value]) => value), [`${PREFIX[api] ?? ""}${KEY}`]);
                const kept = parsedHeaders(answer.headers);
                assert.deepEqual(kept, [["Content-Type", "text/event-stream; charset=utf-8"], ["X-Odd", "kept"],
                    ["request-id", "req_1"], ["Date", "Mon, 30 Nov 2026 01:02:03 GMT"], ["Set-Cookie", "a=1"],
                    ["Set-Cookie", "b=2"]]);
                const end = await gateway.end(i + 1);
                assert.equal(end.error, null, JSON.stringify(end));
                assert.ok(end.usage.outputTokens > 0 && !end.usage.estimated, JSON.stringify(end.usage));
            }
        });
    }

    const parsedHeaders = (headers) => headers.filter(([name]) => !OF_ONE_LEG.test(name));

    for (const api of APIS) {
        test(`${api}: a stream cut at any byte comes as far as it came, and the host sees that it broke`, async (t) => {
            const stream = await streamFor(model, api, 'SAY some text CALL bash {"command":"echo whole"}');
            let cut = 0;
            const provider = await startProvider(t, () => ({
                head: STREAM_HEAD, pieces: chunked(stream.subarray(0, cut)).slice(0, -1), close: true,
            }));
            const gateway = await startGateway(t, { baseUrl: baseOf(provider.url, api), api });
            const request = rawRequest(requestFor(api, "x"));
            for (cut = 0; cut < stream.length; cut += EVERY) {
                const answer = await ask(gateway.socket, request);
                assert.ok(answer.body.equals(stream.subarray(0, cut)), `${cut} of ${stream.length} bytes`);
                assert.ok(answer.broken, `${cut} of ${stream.length} bytes`);
                const { error } = await gateway.end(provider.requests.length);
                assert.equal(error?.code, "model_stream_broken", `${cut} of ${stream.length} bytes`);
            }
        });
    }

    test("nonsense, overlong lines, other media types and trailing bytes pass as they are", async (t) => {
        const odd = [
            'RAW "data: {not json\\n\\n" SAY a', 'RAW "\\u00ff\\u0000\\u00fe:\\r\\r" SAY a',
            "LONG 300000 SAY a", "LONG 100000 JUNK SAY a", 'SAY a TRAIL "data: more"', "PINGS 50 SAY a"];
        for (const api of APIS) {
            const streams = await Promise.all(odd.map((script) => streamFor(model, api, script)));
            const types = ["text/event-stream", "text/html"];
            const provider = await startProvider(t, () => {
                const nth = provider.requests.length - 1;
                return {
                    head: STREAM_HEAD.replace(types[0], types[nth % 2]),
                    pieces: chunked(streams[Math.floor(nth / 2)], [4096, 1]),
                };
            });
            const gateway = await startGateway(t, { baseUrl: baseOf(provider.url, api), api });
            for (const stream of streams) {
                for (const type of types) {
                    const answer = await ask(gateway.socket, rawRequest(requestFor(api, "x")));
                    assert.ok(answer.body.equals(stream) && !answer.broken);
                    assert.ok(answer.head.includes(type));
                    const end = await gateway.end(provider.requests.length);
                    assert.ok(end.usage.outputTokens > 0, JSON.stringify(end));
                    // What the host's reader would choke on is known, and relayed all the same.
                    assert.ok(end.error === null || /is no JSON/.test(end.error.message), JSON.stringify(end));
                }
            }
        }
    });

    test("each byte is passed on at once: pings while the model is silent, and what follows", async (t) => {
        for (const api of APIS) {
            const gateway = await startGateway(t, { baseUrl: model.baseUrl(api), api });
            const text = `SAY first ${api} HANG PINGS 1 HANG SAY last`;
            const connection = net.connect({ path: gateway.socket });
            connection.write(rawRequest(requestFor(api, text)));
            const reader = connection[Symbol.asyncIterator]();
            let got = "";
            const until = async (words) => {
                while (!words.test(got)) {
                    const { value, done } = await reader.next();
                    assert.ok(!done, `ended before ${words}`);
                    got += value.toString("latin1");
                }
                got = "";
            };
            const request = await model.waitForRequest((r) => r.userText === text);
            await until(/first/);
            await request.stalled;
            request.release();
            await until(/ping/);
            await Promise.race([until(/last/), releaseUntil(model, request)]);
            await request.done;
            connection.destroy();
        }
    });

    /** A gateway before a provider that answers as `answers` say, one after the other. */
    async function withProvider(t, answers, run) {
        const provider = await startProvider(t, () => answers[Math.min(provider.requests.length, answers.length) - 1]);
        const gateway = await startGateway(t, { baseUrl: `${provider.url}/v1` });
        const send = () => ask(gateway.socket, rawRequest(requestFor("openai-completions", "x")));
        await run(send, provider, gateway);
    }
    const DONE = Buffer.from('data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n');
    const EVIL = Buffer.from("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    const whole = { head: STREAM_HEAD, pieces: chunked(DONE) };

    test("a connection whose answer was whole is used again", async (t) => {
        await withProvider(t, [whole], async (send, provider, gateway) => {
            for (let i = 1; i <= 5; i += 1) {
                const answer = await send();
                assert.ok(answer.body.equals(DONE) && !answer.broken);
                await gateway.end(i);
                await settled(gateway); // the connection is put back after the host has its answer
            }
            assert.equal(provider.requests.length, 5);
            assert.equal(provider.connections, 1);
        });
    });

    test("a connection is not used again after a broken answer, by its provider's wish, or when more came on it", async (t) => {
        const cases = {
            broken: [{ head: STREAM_HEAD, pieces: chunked(DONE).slice(0, -1), close: true }, whole],
            unwanted: [{ ...whole, head: STREAM_HEAD.replace("Transfer", "Connection: close\r\nTransfer") }, whole],
            "closed since": [{ ...whole, close: true }, whole],
            "more came": [whole, whole],
        };
        for (const [name, answers] of Object.entries(cases)) {
            await withProvider(t, answers, async (send, provider, gateway) => {
                await send();
                await gateway.end(1);
                await settled(gateway);
                if (name === "more came") {
                    await provider.push(EVIL);
                }
                const second = await send();
                assert.ok(second.body.equals(DONE), `${name}: ${second.body}`);
                assert.equal(provider.connections, 2, name);
            });
        }
    });

    test("what comes behind a whole answer is never taken for the next one", async (t) => {
        await withProvider(t, [{ ...whole, pieces: [...whole.pieces, EVIL] }, whole], async (send, provider, gateway) => {
            await send();
            await gateway.end(1);
            await settled(gateway);
            assert.ok((await send()).body.equals(DONE));
        });
    });

    test("a kept connection that dies as it is used costs nothing: the request goes on a new one", async (t) => {
        // It is alive when it is chosen, and closed without a byte once the request is there.
        await withProvider(t, [whole, { head: "", close: true }, whole], async (send, provider, gateway) => {
            await send();
            await gateway.end(1);
            await settled(gateway);
            const second = await send();
            assert.ok(second.body.equals(DONE) && !second.broken);
            assert.equal((await gateway.end(2)).error, null);
            assert.equal(provider.connections, 2);
            assert.equal(provider.requests.length, 3);
            assert.ok(provider.requests[2].body.equals(provider.requests[1].body));
        });
    });

    test(`${FULL ? 10_000 : 1_000} requests, good and bad, leave no descriptor and no memory behind`, async (t) => {
        const scripts = ["SAY hello there", "SAY cut CUT", "CUT EARLY", "FAIL 429 1", "FAIL 500 HTML", "CUT AT 100",
            "ERROR no", "SAY a CUT CLEAN", 'RAW "x" LONG 20000'];
        const api = "openai-completions";
        const gateway = await startGateway(t, { baseUrl: model.baseUrl(api), api });
        const CALLERS = 8;
        let sent = 0;
        async function run(count) {
            const upTo = sent + count;
            await Promise.all(Array.from({ length: CALLERS }, async () => {
                while (sent < upTo) {
                    await ask(gateway.socket, rawRequest(requestFor(api, scripts[sent++ % scripts.length])));
                }
            }));
            await gateway.end(sent);
            gateway.ends.length = sent; // those that came for more would fail the next round
            return gateway.state();
        }
        await run(200);
        const before = await settled(gateway);
        await run(FULL ? 10_000 : 1_000);
        // Each of the callers may have left a connection that is kept.
        await settled(gateway, (after) => after.fds <= before.fds + CALLERS && after.heap - before.heap < 1024 * 1024);
    });
});

/** The state once no request is under way (its connection is kept or closed by then) and `holds` is true of it. */
async function settled(gateway, holds = () => true) {
    for (const deadline = Date.now() + 60_000; ;) {
        const state = await gateway.state();
        if (state.requests === 0 && holds(state)) {
            return state;
        }
        assert.ok(Date.now() < deadline, JSON.stringify(state));
        await setImmediate();
    }
}

async function releaseUntil(model, request) {
    while (request.outcome === undefined) {
        model.release();
        await setImmediate();
    }
    return new Promise(() => {});
}

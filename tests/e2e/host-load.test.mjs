// Many sessions in one host, and a control that reads slowly.
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { startGateway, startHost } from "../support/host-driver.mjs";
import { startModelServer } from "../support/model-server.mjs";

const MODEL = { provider: "groq", id: "llama-3.1-8b-instant" };
const MIB = 1024 * 1024;

test("fifty sessions run side by side, each with its own tools, texts and token", async (t) => {
    const server = await startModelServer();
    const gateway = await startGateway(server.baseUrl("openai-completions"));
    const host = await startHost(gateway);
    t.after(async () => {
        await host.stop();
        await gateway.close();
        await server.close();
    });
    host.onTool("bash", ({ command }, { session }) => `${session} ran ${command}`);
    const ids = Array.from({ length: 50 }, (_, i) => `sess_${i}`);
    await Promise.all(ids.map(async (id) => {
        await host.open(id, { model: MODEL });
        const settled = await host.run(id, `CALL bash {"command":"${id}"} THEN SAY $RESULT`);
        assert.equal(settled.error, undefined);
        const last = host.entries(id).at(-1).message;
        assert.equal(last.content[0].text, `${id} ran ${id}`);
    }));
    for (const request of server.requests) {
        const id = /"command":\s*\\?"(sess_\d+)/.exec(request.userText)[1];
        assert.equal(request.headers["x-pi-session"], `token-${id}`);
    }
    await Promise.all(ids.map((id) => host.call({ op: "close", session: id })));
});

/** A gateway that itself streams `count` chunks of text as fast as they are taken: {socket, sent(), close()}. */
async function startFirehose(count, chunk) {
    let sent = 0;
    const frame = `data: ${JSON.stringify({
        id: "x", object: "chat.completion.chunk", choices: [{ index: 0, delta: { content: chunk } }],
    })}\n\n`;
    const server = http.createServer(async (request, response) => {
        request.resume();
        if (request.method === "GET") { // the warm-up
            response.writeHead(401).end();
            return;
        }
        const gone = once(response, "close");
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (; sent < count && !response.destroyed; sent += 1) {
            if (!response.write(frame)) {
                await Promise.race([once(response, "drain"), gone]);
            }
        }
        response.write(`data: ${JSON.stringify({
            id: "x", object: "chat.completion.chunk", choices: [{ index: 0, delta: {}, finish_reason: "stop" }],
        })}\n\n`);
        response.end("data: [DONE]\n\n");
    });
    const dir = await mkdtemp(path.join(tmpdir(), "hose-"));
    const socket = path.join(dir, "gateway.sock");
    await new Promise((resolve) => server.listen(socket, resolve));
    const close = async () => {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
        await rm(dir, { recursive: true });
    };
    return { socket, sent: () => sent, close };
}

function residentBytes(pid) {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) * 1024;
}

/** Until the number stands still: the stream is held up. */
async function standsStill(number) {
    for (let last = -1, same = 0; same < 6;) {
        await pause(50);
        same = number() === last ? same + 1 : 0;
        last = number();
    }
}

test("a control that does not read stops the model's stream; the host's memory stays small", async (t) => {
    const [count, chunk] = [400, "words ".repeat(4096)]; // 9 MiB
    const hose = await startFirehose(count, chunk);
    const host = await startHost(hose);
    t.after(async () => {
        await host.stop();
        await hose.close();
    });
    await host.open("sess_hose", { model: MODEL });
    const before = residentBytes(host.child.pid);
    await host.call({ op: "prompt", session: "sess_hose" }, [{ type: "text", text: "go" }]);
    host.socket.pause();
    await standsStill(hose.sent);
    assert.ok(hose.sent() < count / 4, `${hose.sent()} of ${count} chunks were read from the model`);
    const grown = residentBytes(host.child.pid) - before;
    assert.ok(grown < 64 * MIB, `the host grew by ${grown >> 20} MiB`);
    host.socket.resume();
    const settled = await host.settled("sess_hose");
    assert.equal(settled.error, undefined);
    const length = host.deltas("sess_hose").reduce((sum, d) => sum + d.text.length, 0);
    assert.equal(length, count * chunk.length);
});

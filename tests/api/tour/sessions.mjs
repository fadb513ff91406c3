// A session's life: made, worked with, watched, read, deleted.
import { readFileSync, readdirSync } from "node:fs";
import { MODEL } from "../support.mjs";

const VECTORS = new URL("../../vectors/projection/", import.meta.url);
/** Types that the projection passes on and no part of the service makes yet. */
const LATER = /^session\.(status_terminated|thread_)|^span\.outcome_|^a\.|^system\.message$/;

const TIME = "2026-11-30T12:00:00.000Z";

/** The frozen events of the projection: what is rare on a tour is among them. */
export const golden = [
    ...readdirSync(VECTORS).filter((name) => name.endsWith(".events.json"))
        .flatMap((name) => JSON.parse(readFileSync(new URL(name, VECTORS), "utf8")).events)
        .filter(({ type }) => !LATER.test(type))
        .map((event) => ["Event", event]),
    ["Usage", { inputTokens: 1, outputTokens: 1, cacheReadInputTokens: 0, cacheCreationInputTokens: 0,
        costUsd: 0, estimated: true }],
    ["RequestUsage", { inputTokens: 1, outputTokens: 1, cacheReadInputTokens: 0,
        cacheCreationInputTokens: 0, estimated: true }],
    ["Event", { type: "user.message", id: `evt_${"0".repeat(26)}`, seq: 1, createdAt: TIME, processedAt: TIME,
        sessionId: `sess_${"0".repeat(26)}`, content: [], deliverAs: "steer", withdrawn: true }],
    ["Diff", { type: "diff", sessionId: `sess_${"0".repeat(26)}`, path: "/", truncated: false,
        summary: { added: 2, changed: 1, removed: 1, leftOut: 0 },
        changes: [
            { path: "/\ufffd", pathBase64: "L/8=", change: "added", type: "folder", mode: "0755", modifiedAt: TIME },
            { path: "/f", change: "added", type: "other", mode: "0644", modifiedAt: null },
            { path: "/l", change: "changed", type: "link", mode: "0777", target: "\ufffd", targetBase64: "/w==",
                modifiedAt: TIME, before: { type: "file", mode: "0644", size: 1, modifiedAt: TIME } },
            { path: "/m", change: "changed", type: "file", mode: "0644", size: 1, modifiedAt: TIME,
                before: { type: "link", mode: "0777", target: "\ufffd", targetBase64: "/w==", modifiedAt: null } },
            { path: "/r", change: "removed", type: "file", mode: "0644", size: 2, modifiedAt: TIME },
        ] }],
    ["StreamFrame", { type: "event_discarded", sessionId: `sess_${"0".repeat(26)}`,
        eventId: `evt_${"0".repeat(26)}` }],
];

export default async function tour({ service, job }) {
    const agent = await job.agent({ api: "anthropic-messages" }), environment = await job.environment();
    const upload = ["--b", 'Content-Disposition: form-data; name="file"; filename="in.txt"', "", "in", "--b--", ""];
    const file = await service.ok("POST", "/v1/files", upload.join("\r\n"),
        { headers: { "content-type": "multipart/form-data; boundary=b" } });
    const both = { resources: [{ type: "file", fileId: file.id, path: "in/a.txt" }], environmentId: environment.id, metadata: { a: "b" }, title: "Tour" };
    const key = { headers: { "idempotency-key": "tour" } };
    const made = await service.ok("POST", "/v1/sessions", { agent: agent.id, ...both }, key);
    await service.ok("POST", "/v1/sessions", { agent: { id: agent.id, version: 1, overrides: {
        model: MODEL, systemPrompt: null, tools: null, extensions: null, skills: null,
        mcpServers: null, projectContext: false } }, ...both });
    await lists(service, agent, environment);
    const path = `/v1/sessions/${made.id}`;
    await service.request("POST", `${path}/shell`, // there is no sandbox yet
        { headers: { connection: "Upgrade", upgrade: "pi-shell" } });
    await talk(service, path, made.id);
    await read(service, path);
    await remove(service, path, made.id);
}

async function lists(service, agent, environment) {
    const all = `/v1/sessions?status=idle&agentId=${agent.id}&environmentId=${environment.id}&limit=1&order=desc`;
    const page = await service.ok("GET", all);
    await service.ok("GET", "/v1/sessions?requestId=none");
    await service.ok("GET", `${all}&cursor=${encodeURIComponent(page.nextCursor)}`);
}

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==";

async function talk(service, path, id) {
    const stream = await service.stream(id, { eventDeltas: ["agent.message", "agent.tool_result"] });
    const idle = () => stream.until((frame) => frame.type === "session.status_idle");
    const post = (body, options) => service.ok("POST", `${path}/events`, body, options);
    await post({ type: "user.message", content: "THINK about it SAY yes", deliverAs: "followUp" },
        { headers: { "idempotency-key": "tour" } });
    await idle();
    await post({ type: "user.message", content: 'CALL bash {"command":"echo tour"} THEN SAY done' });
    await idle();
    await post({ events: [
        { type: "user.message", content: [
            { type: "text", text: "SAY seen" }, { type: "image", mimeType: "image/png", data: PIXEL }] },
        { type: "user.interrupt" },
    ] });
    await idle();
    await post({ type: "user.interrupt" });
    await stream.close();
    const again = await service.stream(id, { lastEventId: 1 });
    await again.close();
    const third = await service.stream(id, { query: { lastEventId: "1" } });
    await third.close();
}

async function read(service, path) {
    await service.ok("PATCH", path, { title: "New", metadata: { a: "c" }, agent: { tools: null, mcpServers: null } });
    const { data } = await service.ok("GET", `${path}/events?limit=1000`);
    const message = data.find((event) => event.type === "user.message");
    await service.request("DELETE", `${path}/events/${message.id}`);
    await service.ok("GET", `${path}/usage`);
    await service.ok("GET", `${path}/messages`);
    const tree = await service.ok("GET", `${path}/tree`);
    await service.ok("POST", `${path}/fork`, { entryId: tree.data.find((node) => node.role === "user").id,
        files: "copy", title: "Fork", metadata: { c: "d" } }, { headers: { "idempotency-key": "tour" } });
    for (const list of ["entries", "tree"]) {
        await service.ok("GET", `${path}/${list}?from=2&limit=3`);
    }
    for (const list of ["events", "entries", "tree"]) {
        const page = await service.ok("GET", `${path}/${list}?limit=1&order=asc`);
        const cursor = encodeURIComponent(page.nextCursor);
        await service.ok("GET", `${path}/${list}?limit=1&order=asc&cursor=${cursor}`);
    }
    await service.ok("GET", `${path}/events?type=agent.message`);
    await service.ok("GET", path);
    await service.ok("GET", `${path}/sandbox`);
    await service.request("GET", "/metrics");
    await service.ok("GET", `${path}/export`);
    await service.ok("GET", `${path}/diff?path=/`);
    await service.request("GET", `${path}/diff?format=patch`);
    await service.request("GET", `${path}/workspace?path=/workspace&changes=true`);
}

async function remove(service, path, id) {
    const stream = await service.stream(id, { lastEventId: 99999 });
    await service.ok("POST", `${path}/events`, { type: "user.interrupt" });
    await stream.until((frame) => frame.type === "user.interrupt"); // it is live
    await service.ok("DELETE", `${path}?purge=true`);
    await stream.until((frame) => frame.type === "session.deleted");
    await stream.close();
}

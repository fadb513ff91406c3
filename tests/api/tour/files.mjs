// A file, uploaded, looked at, downloaded whole and in part, deleted; and a log that becomes a session.
const BOUNDARY = "tour";
const body = (name) => `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n`
    + `Content-Type: text/plain\r\n\r\nhello\r\n--${BOUNDARY}\r\nContent-Disposition: form-data; name="metadata"\r\n\r\n`
    + `{"k":"v"}\r\n--${BOUNDARY}--\r\n`;

export default async function tour({ service }) {
    const upload = (name, headers) => service.ok("POST", "/v1/files", body(name), { headers: {
        "content-type": `multipart/form-data; boundary=${BOUNDARY}`, ...headers } });
    const [first] = [await upload("one.txt", { "idempotency-key": "tour-file" }), await upload("two.txt")];
    const { nextCursor } = await service.ok("GET", "/v1/files?limit=1&order=asc");
    await service.ok("GET", `/v1/files?limit=1&order=asc&cursor=${nextCursor}`);
    await service.ok("GET", `/v1/files/${first.id}`);
    await service.ok("GET", `/v1/files/${first.id}/content`);
    await service.request("GET", `/v1/files/${first.id}/content`, { headers: { range: "bytes=1-2" } });
    await service.ok("DELETE", `/v1/files/${first.id}`);

    const agent = await service.ok("POST", "/v1/agents", { name: "importer", model: { provider: "local", id: "m",
        api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1" } });
    const environment = await service.ok("POST", "/v1/environments", { name: "imports" });
    const moved = await service.ok("POST", `/v1/sessions/import?agent=${agent.id}&environmentId=${environment.id}&title=moved`,
        '{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\n',
        { headers: { "content-type": "application/jsonl", "idempotency-key": "tour-import" } });
    await service.ok("GET", `/v1/files?sessionId=${moved.id}`);
}

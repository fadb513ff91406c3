// TLS by --tls-cert and --tls-key: the parent opens the files and passes them on, so that control serves a key which it
// could not read itself; streams and restarts of control included.
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { eventually } from "../support/eventually.mjs";
import { SERVICE_PROGRAM, startService } from "../support/service.mjs";

let folder;
const file = (name) => path.join(folder, name);
before(() => {
    folder = mkdtempSync(path.join(tmpdir(), "tls-"));
    chmodSync(folder, 0o700);
    for (const name of ["one", "two"]) {
        execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", file(`${name}.key`),
            "-out", file(`${name}.crt`)], { stdio: "pipe" });
        chmodSync(file(`${name}.key`), 0o600);
    }
});
after(() => rmSync(folder, { recursive: true, force: true }));

describe("a service with a certificate", () => {
    let service;
    before(async () => {
        service = await startService({ args: ["--tls-cert", file("one.crt"), "--tls-key", file("one.key")] });
    });
    after(() => service?.stop());

    const open = (target, options = {}) => new Promise((resolve, reject) => {
        const { hostname, port } = new URL(service.url);
        https.request({ hostname, port, path: target, ca: readFileSync(file("one.crt")), agent: false,
            headers: { authorization: `Bearer ${service.apiKey}` }, ...options })
            .once("response", resolve).once("error", reject).end(options.body);
    });
    const request = async (target, options) => {
        const response = await open(target, options);
        const chunks = await response.toArray();
        return { status: response.statusCode, body: JSON.parse(Buffer.concat(chunks)) };
    };

    test("serves over it, and nothing without it", async () => {
        assert.match(service.url, /^https:/);
        assert.deepEqual((await request("/v1/agents")).body.data, []);
        const { port } = new URL(service.url);
        await assert.rejects(new Promise((resolve, reject) => {
            http.get({ hostname: "127.0.0.1", port, path: "/healthz" }, resolve).once("error", reject);
        }));
        await assert.rejects(open("/healthz", { ca: readFileSync(file("two.crt")) }), /self.signed|certificate/i);
        await assert.rejects(open("/healthz", { maxVersion: "TLSv1.1", minVersion: "TLSv1" }));
    });

    test("streams and large bodies go through", async () => {
        const post = (target, body) => request(target, { method: "POST", body: JSON.stringify(body), headers: {
            authorization: `Bearer ${service.apiKey}`, "content-type": "application/json" } });
        const model = { provider: "local", id: "m", api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1" };
        const agent = await post("/v1/agents", { name: "a", model, systemPrompt: "x".repeat(60_000) });
        assert.equal(agent.status, 201, JSON.stringify(agent.body));
        const environment = await post("/v1/environments", { name: "e" });
        const session = await post("/v1/sessions", { agent: agent.body.id, environmentId: environment.body.id });
        const stream = await open(`/v1/sessions/${session.body.id}/stream`);
        assert.equal(stream.statusCode, 200);
        const [first] = await stream.take(1).toArray();
        assert.match(String(first), /retry:/);
        stream.destroy();
    });

    test("a control that died serves with the same certificate again", async () => {
        const control = readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).find((pid) => {
            try {
                return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("--role\0control")
                    && new RegExp(`^PPid:\\s*${service.pid}$`, "m").test(readFileSync(`/proc/${pid}/status`, "utf8"));
            } catch {
                return false;
            }
        });
        process.kill(Number(control), "SIGKILL");
        await eventually("control to serve again", () => request("/v1/agents").then(({ status }) => status, () => 0),
            (status) => status === 200);
    });
});

describe("what cannot be is refused at the start", () => {
    const refused = (pattern, ...args) => assert.rejects(promisify(execFile)(SERVICE_PROGRAM,
        ["serve", "--data", file("data"), ...args], { timeout: 60_000 }), pattern);

    test("half of it, files that are not there, a key of another certificate, no TLS off loopback", async () => {
        await refused(/belong together/, "--tls-cert", file("one.crt"));
        await refused(/missing\.key/, "--tls-cert", file("one.crt"), "--tls-key", file("missing.key"));
        await refused(/certificate|TLS/, "--tls-cert", file("one.crt"), "--tls-key", file("two.key"),
            "--listen", "127.0.0.1:0");
        await refused(/TLS|--insecure/, "--listen", "0.0.0.0:0");
    });
});

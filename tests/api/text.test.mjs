// Texts that break other systems (NUL ends a C string and is refused by databases; half a surrogate pair is refused
// by every later reader): in every string of every body, parameter and header of the contract. A new route or
// member is tested without a line here. A NUL is refused where it stands or kept whole, never cut at, never a 500.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { theContract } from "../support/contract.mjs";
import { SERVICE_PROGRAM } from "../support/service.mjs";
import { Tenant, places, put } from "./makers.mjs";
import { assertProblem, startService } from "./support.mjs";

const NUL = "a\0b";
const MARK = "@mark@"; // stands for what JSON.stringify would not write
const BROKEN = ["\\ud83d", "\\ude00\\ud83d", "x\\udfff", "\xed\xa0\xbd", "\xff", "\xc0\x80", "\xf5\x80\x80\x80"];
/** What a client says in words, kept as it is (R13). */
const KEEPS_NUL = /\/content$|\/content\/0\/text$/;

let service, owner;
before(async () => {
    service = await startService();
    owner = new Tenant(service, { key: service.apiKey });
});
after(() => service?.stop());

const isString = ({ type }) => [type].flat().includes("string");
const pointer = (names) => names.map((name) => `/${name}`).join("");
const operations = theContract.operations();

/** All strings inside a value, names of members, too. */
const strings = (value) => typeof value === "string" ? [value] : value === null || typeof value !== "object" ? []
    : Object.entries(value).flatMap(([name, one]) => [name, ...strings(one)]);

/** A request whose body has `what` at a place; bytes of MARK are put in afterwards. */
async function send({ path, method, operation, base, segments }, place, what, bytes) {
    const body = structuredClone(base);
    place.beside.forEach(([at, value]) => put(body, at, value));
    put(body, place.at.map((name) => name === "*" ? "key" : name), what);
    const text = Buffer.from(JSON.stringify(body).replaceAll(MARK, bytes ?? ""), bytes === undefined ? "utf8" : "latin1");
    return service.request(method.toUpperCase(), `/${segments.join("/")}`, { body: text, ...owner.options });
}

/** The name of a member at a place, beside whatever is there. */
const sendName = (target, place, name, bytes) =>
    send(target, { ...place, at: [...place.at.slice(0, -1), name] }, "v", bytes);

const bodies = operations.filter(({ operation }) => operation.requestBody?.content["application/json"]);
test("there are bodies", () => assert.ok(bodies.length >= 12, `${bodies.length}`));

for (const { path, method, operation } of bodies) {
    describe(`${method.toUpperCase()} ${path}`, () => {
        const { schema } = operation.requestBody.content["application/json"];
        const texts = places(schema).filter(({ at, schema: one }) =>
            at.length > 0 && (isString(one) || one.const !== undefined));
        const target = { path, method, operation };
        before(async () => {
            // Of a choice of bodies, the example is one; what belongs to another stands beside the place.
            target.base = theContract.resolve(schema).properties ? await owner.body(operation) : {};
            target.segments = await owner.segments(path);
        });

        test("refuses broken text in every string, and in names", async () => {
            for (const place of texts) {
                for (const bytes of BROKEN) {
                    const why = `${pointer(place.at)} = ${JSON.stringify(bytes)}`;
                    for (const reply of [await send(target, place, MARK, bytes), await sendName(target, place, MARK, bytes)]) {
                        assert.equal(reply.status, 400, `${why}: ${reply.text}`);
                        assertProblem(reply, 400, "invalid_json");
                    }
                }
            }
        });

        test("refuses NUL in names of members, and in every string that is not what somebody says", async () => {
            for (const place of texts) {
                const where = pointer(place.at.map((name) => name === "*" ? "key" : name));
                assertProblem(await sendName(target, place, NUL), 400, "invalid_json");
                const reply = await send(target, place, NUL);
                if (KEEPS_NUL.test(where)) {
                    assert.equal(reply.status, 202, `${where}: ${reply.text}`);
                    assert.ok(strings(reply.body).includes(NUL), `${where}: ${reply.text}`);
                    continue;
                }
                const paths = (assertProblem(reply, 400).errors ?? []).map((error) => error.path);
                assert.ok(paths.some((one) => one === where || where.startsWith(`${one}/`)), `${where}: ${reply.text}`);
            }
        });
    });
}

test("what keeps a NUL keeps it in every list, too", async () => {
    const { operation } = theContract.find("POST", "/v1/sessions/sess_x/events");
    const [session] = (await owner.segments("/v1/sessions/{id}")).slice(-1);
    const posted = await service.ok("POST", `/v1/sessions/${session}/events`,
        { ...await owner.body(operation), content: `${NUL}\0` });
    assert.equal(posted.data[0].content[0].text, `${NUL}\0`);
    const stream = await service.stream(session, { lastEventId: 0 });
    const frames = await stream.until((frame) => frame.type === "user.message");
    stream.close();
    assert.equal(frames.at(-1).data.content[0].text, `${NUL}\0`);
    for (const list of ["events", "entries"]) {
        const { data } = await service.ok("GET", `/v1/sessions/${session}/${list}?limit=100`);
        assert.ok(strings(data).includes(`${NUL}\0`), list);
    }
});

describe("parameters", () => {
    const BAD = ["%00", "a%00b", "%ED%A0%BD", "%ff", "a%C3", "%C0%80"];

    for (const { path, method, operation, parameters } of operations) {
        const names = parameters.filter((one) => one.in === "query");
        const ids = path.split("/").flatMap((name, i) => /^\{/.test(name) ? [i - 1] : []);
        if (names.length + ids.length === 0) {
            continue;
        }
        test(`of ${method.toUpperCase()} ${path}`, async () => {
            const segments = await owner.segments(path);
            const body = await owner.body(operation);
            const request = (target) => service.request(method.toUpperCase(), target, { body, ...owner.options });
            for (const bad of BAD) {
                for (const { name } of names) {
                    assertProblem(await request(`/${segments.join("/")}?${name}=${bad}`), 400);
                    assertProblem(await request(`/${segments.join("/")}?${name}${bad}=1`), 400);
                }
                for (const place of ids) {
                    const target = segments.map((one, i) => i === place ? bad : one).join("/");
                    assertProblem(await request(`/${target}`), 400);
                }
            }
        });
    }

    test("that hold JSON", async () => {
        const withJson = operations.flatMap(({ path, parameters }) =>
            parameters.filter((one) => one.content).map(({ name }) => [path, name]));
        assert.ok(withJson.length >= 1);
        for (const [path, name] of withJson) {
            const ask = (value) => service.request("GET", `${path}?${name}=${encodeURIComponent(value)}`);
            for (const value of ['{"a":"\\ud83d"}', '{"a\\u0000":"b"}', '{"\\ud83d":"b"}', "{\"a\":\"\0\"}"]) {
                assertProblem(await ask(value), 400);
            }
            await service.ok("POST", path, { ...await owner.body(theContract.find("POST", path).operation), metadata: { a: "b" } });
            assert.equal((await ask('{"a":"b"}')).body.data.length, 1);
            assert.deepEqual((await ask('{"a":"b\\u0000"}')).body.data, [], "compared to its end");
        }
    });
});

/** What the service says to these bytes of a request. */
function raw(head) {
    const { hostname, port } = new URL(service.url);
    return new Promise((resolve, reject) => {
        const socket = net.connect(port, hostname, () => socket.write(Buffer.from(head, "latin1")));
        const parts = [];
        socket.on("data", (bytes) => parts.push(bytes));
        socket.once("error", reject).once("close", () => resolve(Buffer.concat(parts).toString("latin1")));
    });
}

test("headers: a NUL, control characters and bytes beyond ASCII are refused or leave the header out, and nothing is cut", async () => {
    const { length } = (await service.ok("GET", "/v1/agents?limit=100")).data;
    const head = (name, value, body = '{"name":"x"}') => `POST /v1/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n`
        + `Authorization: Bearer ${service.apiKey}\r\nContent-Type: application/json\r\n${name}: ${value}\r\n`
        + `Content-Length: ${body.length}\r\n\r\n${body}`;
    assert.match(await raw(head("Idempotency-Key", "sound")), /^HTTP\/1\.1 400 .*"\/model"/s); // the probe itself is heard
    for (const name of ["Idempotency-Key", "X-Request-Id", "Last-Event-ID", "Accept", "Content-Encoding", "X-Other"]) {
        for (const value of ["a\0b", "a\x01b", "a\x7fb", "\xed\xa0\xbd", "\xff", "\xc3\xa9"]) {
            const reply = await raw(head(name, value));
            assert.match(reply, /^(HTTP\/1\.1 4\d\d |$)/, `${name}: ${JSON.stringify(value)}: ${reply}`);
            assert.doesNotMatch(reply, /X-Request-Id: a\r|[\0\x01\x7f-\xff]/i, name);
        }
    }
    for (const [key, status] of [["a\0b", 400], ["a\x01", 400], ["\xc3\xa9", 400]]) {
        const reply = await raw(head("Idempotency-Key", key));
        assert.match(reply, new RegExp(`^(HTTP/1\\.1 ${status} |$)`));
        assert.doesNotMatch(reply, /"\/model"/); // refused for the key, not for what comes after it
    }
    assert.match(await raw(`GET /v1/agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer ${
        service.apiKey}\0x\r\n\r\n`), /^(HTTP\/1\.1 40[01] |$)/);
    assert.equal((await service.ok("GET", "/v1/agents?limit=100")).data.length, length, "nothing was made");
});

test("names that only the command line gives are checked as well", async () => {
    const run = (...args) => promisify(execFile)(SERVICE_PROGRAM, [...args, "--data", service.data]);
    for (const name of ["a\nb", "a\u0001b", "a\u009bb", "\u{1f600}".repeat(129), ""]) {
        for (const args of [["tenant", "create", name], ["key", "create", "--name", name], ["plan", "set", name]]) {
            await assert.rejects(run(...args), /1 to \d+ characters/, JSON.stringify(args));
        }
    }
    await run("tenant", "create", "\u{1f600}".repeat(128));
});

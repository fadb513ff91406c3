// Environments: validation, limits that must be enforced, lifecycle.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
    assertPaths, assertProblem, createSession, createTenant, environmentBody, startService,
    uniqueName,
} from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const post = (body, options) => service.request("POST", "/v1/environments", { body, ...options });
const create = (more) => service.ok("POST", "/v1/environments", environmentBody(more));

test("create answers 201 with the resource and its defaults", async () => {
    const body = environmentBody();
    const reply = await post(body);
    assert.equal(reply.status, 201, reply.text);
    const made = reply.body;
    assert.match(made.id, /^env_[0-9A-HJKMNP-TV-Z]{26}$/);
    assert.deepEqual(made, {
        id: made.id, name: body.name, type: "cloud", image: "host", resources: null, packages: null, mounts: null,
        networking: { type: "none" }, idleTimeout: 300, maxDuration: 86400, metadata: {},
        createdAt: made.createdAt, updatedAt: made.createdAt, archivedAt: null,
    });
    assert.deepEqual(await service.ok("GET", `/v1/environments/${made.id}`), made);
});

const VOLUME = { type: "volume", name: "a", target: "/srv/a" };
const mounting = (...mounts) => environmentBody({ mounts });

const refused = [
    ["nothing", {}, ["/name"]],
    ["an unknown field", environmentBody({ cpu: 1 }), ["/cpu"]],
    ["an unknown type", environmentBody({ type: "moon" }), ["/type"]],
    ["self_hosted", environmentBody({ type: "self_hosted" }), ["/type"], "not_supported"],
    ["a path as image", environmentBody({ image: "dir:/" }), ["/image"], "image_not_allowed"],
    ["an image of a registry", environmentBody({ image: "example.com/a/b:1" }), ["/image"], "invalid_image"],
    ["an image that is a folder up", environmentBody({ image: ".." }), ["/image"], "invalid_image"],
    ["an image with a tag of host", environmentBody({ image: "host:1" }), ["/image"], "invalid_image"],
    ["NUL in the image", environmentBody({ image: "host\0" }), ["/image"]],
    ["unrestricted networking", environmentBody({ networking: { type: "unrestricted" } }),
        ["/networking/type"], "not_supported"],
    ["limited networking", environmentBody({ networking: { type: "limited", allowedHosts: ["a"] } }),
        ["/networking/type", "/networking/allowedHosts"], "not_supported"],
    ["networking without a type", environmentBody({ networking: {} }), ["/networking/type"]],
    ["packages", environmentBody({ packages: ["jq"] }), ["/packages"]],
    ["mounts that are no list", environmentBody({ mounts: {} }), ["/mounts"]],
    ["a mount of nothing", mounting({}), ["/mounts/0/type", "/mounts/0/target"]],
    ["an unknown kind of mount", mounting({ type: "tmpfs", target: "/srv/a" }), ["/mounts/0/type"]],
    ["a volume without a name", mounting({ type: "volume", target: "/srv/a" }), ["/mounts/0/name"]],
    ["a volume with a source", mounting({ ...VOLUME, source: "/srv/a" }), ["/mounts/0/source"]],
    ["a bind with a name", mounting({ ...VOLUME, type: "bind", source: "/srv/a" }), ["/mounts/0/name"]],
    ["a bind of what no operator allowed", mounting({ type: "bind", source: "/srv", target: "/srv/a" }), ["/mounts/0"],
        "mount_not_allowed"],
    ["readOnly as text", mounting({ ...VOLUME, readOnly: "yes" }), ["/mounts/0/readOnly"]],
    ["two mounts of one target", mounting(VOLUME, { ...VOLUME, name: "b" }), ["/mounts"], "invalid_mount"],
    ["a mount within another", mounting(VOLUME, { ...VOLUME, name: "b", target: "/srv/a/b" }), ["/mounts"], "invalid_mount"],
    ["a volume mounted twice", mounting(VOLUME, { ...VOLUME, target: "/srv/b" }), ["/mounts"], "invalid_mount"],
    ["nine mounts", mounting(...Array.from({ length: 9 }, (_, i) => ({ ...VOLUME, name: `v${i}`, target: `/srv/${i}` }))),
        ["/mounts"]],
    ...["", "A", "-a", ".a", "a/b", "../a", "a b", "\u00e9", "a\0", "a".repeat(64)].map((name) =>
        [`the name ${JSON.stringify(name)} of a volume`, mounting({ ...VOLUME, name }), ["/mounts/0/name"], "invalid_mount"]),
    ...["", "/", "srv", "/srv/", "/srv//a", "/srv/../a", "/srv/./a", "/srv/a\0", "/srv/a\n", `/srv/${"a".repeat(252)}`, "/proc",
        "/proc/1", "/sys/a", "/dev/a", "/usr", "/usr/local/a", "/etc/a", "/tmp/a", "/.pi", "/.pi/a", "/workspace", "/root", "/mnt",
        "/mnt/session", "/mnt/session/outputs/a", "/mnt/memory/a"].map((target) =>
        [`the target ${JSON.stringify(target)}`, mounting({ ...VOLUME, target }), ["/mounts/0/target"], "invalid_mount"]),
    ...["", "/", "srv", "/srv/../etc", "/srv/a\0b"].map((source) =>
        [`the source ${JSON.stringify(source)}`, mounting({ type: "bind", source, target: "/srv/a" }), ["/mounts/0/source"],
            "invalid_mount"]),
    ["no time at all", environmentBody({ idleTimeout: 0 }), ["/idleTimeout"]],
    ["half a second", environmentBody({ idleTimeout: 0.5 }), ["/idleTimeout"]],
    ["too much time", environmentBody({ maxDuration: 1e9 }), ["/maxDuration"]],
    ["65 cpus", environmentBody({ resources: { cpus: 65 } }), ["/resources/cpus"]],
    ["too much memory", environmentBody({ resources: { memoryMiB: 262145 } }), ["/resources/memoryMiB"]],
    ["too much disk", environmentBody({ resources: { diskMiB: 1048577 } }), ["/resources/diskMiB"]],
    ["no processes", environmentBody({ resources: { pids: 0 } }), ["/resources/pids"]],
    ["memory as text", environmentBody({ resources: { memoryMiB: "512" } }), ["/resources/memoryMiB"]],
    ["an unknown resource", environmentBody({ resources: { gpus: 1 } }), ["/resources/gpus"]],
];

for (const [what, body, paths, code] of refused) {
    test(`refuses ${what}`, async () => assertPaths(await post(body), paths, code));
}

// What a provider can enforce depends on the machine; a limit is kept or refused, never dropped.
for (const [name, value] of Object.entries({ cpus: 1.5, memoryMiB: 256, pids: 64, diskMiB: 100 })) {
    test(`the limit ${name} is kept, or refused because it cannot be enforced`, async () => {
        const resources = { [name]: value };
        const reply = await post(environmentBody({ resources }));
        if (reply.status === 201) {
            assert.deepEqual(reply.body.resources, resources);
        } else {
            assertPaths(reply, [`/resources/${name}`], "limits_not_enforced");
        }
    });
}

test("mounts are kept and say whether they are read-only, or are refused because nothing can be mounted here", async () => {
    const reply = await post(mounting(VOLUME, { ...VOLUME, name: "b", target: "/workspace/b", readOnly: true }));
    if (reply.status !== 201) return assertPaths(reply, ["/mounts/0"], "mounts_not_supported");
    const wanted = [{ ...VOLUME, readOnly: false }, { ...VOLUME, name: "b", target: "/workspace/b", readOnly: true }];
    assert.deepEqual(reply.body.mounts, wanted);
    const path = `/v1/environments/${reply.body.id}`;
    assert.deepEqual((await service.ok("PATCH", path, { idleTimeout: 5 })).mounts, wanted);
    assert.equal((await service.ok("PATCH", path, { mounts: null })).mounts, null);
});

test("an update replaces what it names; null brings the default back", async () => {
    const made = await create({ idleTimeout: 10, metadata: { a: "1" } });
    const path = `/v1/environments/${made.id}`;
    const changed = await service.ok("PATCH", path, { idleTimeout: null, maxDuration: 60 });
    assert.deepEqual(changed,
        { ...made, idleTimeout: 300, maxDuration: 60, updatedAt: changed.updatedAt });
    assertPaths(await service.request("PATCH", path, { body: { name: "" } }), ["/name"]);
    assert.deepEqual(await service.ok("GET", path), changed);
});

test("archive is terminal; delete is for good; a session keeps what it was made with", async () => {
    const made = await create();
    const path = `/v1/environments/${made.id}`;
    const session = await createSession(service, { environmentId: made.id });
    const archived = await service.ok("POST", `${path}/archive`);
    assert.ok(archived.archivedAt);
    assertProblem(await service.request("PATCH", path, { body: { idleTimeout: 9 } }), 409,
        "environment_archived");
    assertProblem(await service.request("POST", "/v1/sessions",
        { body: { agent: session.agentId, environmentId: made.id } }), 409, "environment_archived");
    const deleted = await service.request("DELETE", path);
    assert.equal(deleted.status, 204);
    assert.equal(deleted.text, "");
    for (const method of ["GET", "DELETE"]) {
        assertProblem(await service.request(method, path), 404);
    }
    assert.equal((await service.ok("GET", `/v1/sessions/${session.id}`)).environmentId, made.id);
});

test("an environment that sessions use is not deleted, unless they are or it is archived", async () => {
    const made = await create();
    const path = `/v1/environments/${made.id}`;
    const session = await createSession(service, { environmentId: made.id });
    const problem = assertProblem(await service.request("DELETE", path), 409, "environment_in_use");
    assert.match(problem.detail, /^1 session uses the environment: .*archive/);
    assert.deepEqual(await service.ok("GET", path), made);
    await service.request("DELETE", `/v1/sessions/${session.id}`);
    assert.equal((await service.request("DELETE", path)).status, 204);
});

test("a name is unique and free again after delete", async () => {
    const made = await create();
    assertProblem(await post({ name: made.name }), 409, "name_taken");
    await service.request("DELETE", `/v1/environments/${made.id}`);
    await create({ name: made.name });
});

test("another tenant's environment is 404 in every way", async () => {
    const other = { key: (await createTenant(service, uniqueName("tenant"))).apiKey };
    const made = await create();
    const path = `/v1/environments/${made.id}`;
    for (const [method, target, body] of [
        ["GET", path], ["PATCH", path, {}], ["DELETE", path], ["POST", `${path}/archive`],
    ]) {
        assertProblem(await service.request(method, target, { body, ...other }), 404);
    }
    assert.deepEqual(await service.ok("GET", path), made);
});

// Mounts of an environment (§6.2, R48): volumes that sessions of a tenant share and that outlive them, and folders of
// this machine that the operator allows. Runs as root and, from plain-user.test.mjs, as a plain user.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
    chownSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, renameSync, rmSync, statSync,
    symlinkSync, writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { assertPaths, assertProblem, createTenant } from "../api/support.mjs";
import { eventually } from "../support/eventually.mjs";
import { Session, startJob, textOf } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const isRoot = process.getuid() === 0;
const OWNER = isRoot ? 4321 : process.getuid(); // of folders that are not the host's root's
const hostMounts = () => readFileSync("/proc/self/mounts", "utf8");

describe("mounts", { skip: serviceMissing }, () => {
    let job, world, open, fixed, atRest;
    before(async () => {
        world = realpathSync(mkdtempSync(path.join(tmpdir(), "pm-mounts-")));
        [open, fixed] = ["open", "fixed"].map((name) => path.join(world, name));
        for (const folder of [open, fixed, path.join(world, "elsewhere"), path.join(open, "repo")]) {
            mkdirSync(folder);
            chownSync(folder, OWNER, OWNER);
        }
        writeFileSync(path.join(world, "elsewhere", "secret"), "secret-of-the-host\n");
        writeFileSync(path.join(open, "repo", "readme"), "read me\n");
        chownSync(path.join(open, "repo", "readme"), OWNER, OWNER);
        atRest = hostMounts();
        job = await startJob({ args: ["--allow-mount", `${open},${fixed}:ro`] });
    });
    after(async () => {
        await job?.stop();
        rmSync(world, { recursive: true, force: true });
    });

    async function bash(session, command) {
        const events = await session.run(`CALL bash ${JSON.stringify({ command })} THEN SAY done`);
        const results = events.filter((event) => event.type === "agent.tool_result");
        assert.equal(results.length, 1, JSON.stringify(events));
        return textOf(results[0]);
    }
    const withMounts = (...mounts) => job.session({ environment: { mounts } });
    const volume = (name, more) => ({ type: "volume", name, target: `/srv/${name}`, ...more });
    const bind = (source, more) => ({ type: "bind", source, target: "/srv/bind", ...more });
    const refusedMounts = async (...mounts) =>
        job.service.request("POST", "/v1/environments", { body: { name: `refused ${Math.random()}`, mounts } });
    const volumes = async (name) => (await job.service.ok("GET", `/v1/volumes?name=${name}`)).data;
    const folderOf = ({ id }) => path.join(job.service.data, "volumes", job.service.tenantId, id);
    const endInit = (session) => {
        const run = path.join(job.service.data, "sandboxes", session.id, "run.json");
        process.kill(JSON.parse(readFileSync(run, "utf8")).pid, "SIGKILL");
    };

    test("two sessions share a volume at the same time, and root owns its files in both", async () => {
        const [one, two] = [await withMounts(volume("shared")), await withMounts(volume("shared"))];
        assert.match(await bash(one, "cd /srv/shared && echo from-one > f && chmod 600 f && stat -c %u:%g . f"), /^0:0\n0:0\n/);
        assert.match(await bash(two, "cd /srv/shared && cat f && stat -c %u:%a f && echo from-two >> f && echo new > g"),
            /^from-one\n0:600\n/);
        assert.match(await bash(one, "cat /srv/shared/f /srv/shared/g"), /^from-one\nfrom-two\nnew\n/);
        const [row] = await volumes("shared");
        assert.equal(row.sessions, 2);
        const { uid } = statSync(path.join(folderOf(row), "f"));
        assert.equal(uid, isRoot ? 934464 : process.getuid(), "nobody's on the host as root");
    });

    test("those who start with a new volume at the same time have the same one", async () => {
        const sessions = await Promise.all([1, 2, 3, 4].map(() => withMounts(volume("at-once"))));
        await Promise.all(sessions.map((session, i) => bash(session, `echo ${i} > /srv/at-once/${i}`)));
        assert.match(await bash(sessions[0], "cat /srv/at-once/*"), /^0\n1\n2\n3\n/);
        assert.equal((await volumes("at-once")).length, 1);
    });

    test("a volume stays when its sandbox is booted again and when its session is deleted", async () => {
        const first = await withMounts(volume("stays"));
        await bash(first, "echo kept > /srv/stays/f");
        endInit(first);
        assert.match(await bash(first, "cat /srv/stays/f"), /^kept\n/);
        await job.service.ok("DELETE", `${first.path}?purge=true`);
        assert.match(await bash(await withMounts(volume("stays", { target: "/data/elsewhere" })), "cat /data/elsewhere/f"),
            /^kept\n/);
    });

    test("a read-only volume cannot be written, whoever tries", async () => {
        await bash(await withMounts(volume("fixed")), "echo kept > /srv/fixed/f");
        const reader = await withMounts(volume("fixed", { readOnly: true }));
        const said = await bash(reader, "cd /srv/fixed; cat f; echo more >> f; touch g; rm f; chmod 777 f; "
            + "mount -o remount,rw,bind /srv/fixed; unshare -Urm true; cat f; ls");
        assert.match(said, /^kept\n/);
        assert.equal(said.match(/Read-only file system/g)?.length, 4, said);
        assert.match(said, /\nkept\nf\n/, said);
    });

    test("nothing in it can be set-uid or a device for others, and it cannot be unmounted", async () => {
        const session = await withMounts(volume("flags"));
        const said = await bash(session, "grep ' /srv/flags ' /proc/mounts; umount /srv/flags; "
            + "rmdir /srv/flags; mknod /srv/flags/d b 8 0; ls -A /srv/flags");
        assert.match(said, /^\S+ \/srv\/flags \S+ \S*nosuid,nodev\S*/);
        assert.doesNotMatch(said, /\nd\n/);
        assert.equal((await bash(session, "mountpoint /srv/flags")).trim(), "/srv/flags is a mountpoint");
    });

    test("links in a volume lead nowhere on the host, also not whoever measures and removes it", async () => {
        const secret = path.join(world, "elsewhere");
        const session = await withMounts(volume("links"));
        const said = await bash(session, `cd /srv/links; ln -s ${secret} a; ln -s ../../../../../../../..${secret} b; `
            + "ln -s /proc/1/root c; cat a/secret b/secret; ls -d c/srv/links; cd ..; ls");
        assert.equal(said.match(/No such file/g)?.length, 2, said);
        assert.doesNotMatch(said, /secret-of-the-host/);
        const other = await withMounts(volume("links"));
        assert.doesNotMatch(await bash(other, "cat /srv/links/*/secret; cat /srv/links/c/etc/shadow"), /secret-of-the-host|root:/);
        const [row] = await volumes("links");
        const { sizeBytes } = await job.service.ok("GET", `/v1/volumes/${row.id}`);
        assert.ok(sizeBytes < 1 << 20, `${sizeBytes}`);
        for (const one of [session, other]) await job.service.ok("DELETE", one.path);
        await job.service.ok("DELETE", `/v1/volumes/${row.id}`);
        assert.ok(!existsSync(folderOf(row)));
        assert.equal(readFileSync(path.join(secret, "secret"), "utf8"), "secret-of-the-host\n");
    });

    test("what an agent puts in the way of a mount does not divert it", async () => {
        const session = await withMounts(volume("way", { target: "/srv/deep/way" }));
        await bash(session, "echo kept > /srv/deep/way/f; mv /srv/deep /srv/moved; ln -s /proc /srv/deep");
        endInit(session);
        assert.match(await bash(session, "cat /srv/deep/way/f; readlink -f /srv/deep"), /^kept\n\/srv\/deep\n/);
    });

    test("a volume that its agent closed to all is mounted, measured and removed all the same", async () => {
        const session = await withMounts(volume("closed"));
        await bash(session, "cd /srv/closed; mkdir -p a/b; echo kept > a/b/f; chmod 000 a/b/f a/b a .");
        endInit(session);
        assert.match(await bash(session, "cat /srv/closed/a/b/f; stat -c %a /srv/closed"), /^kept\n0\n/);
        const [row] = await volumes("closed");
        assert.ok((await job.service.ok("GET", `/v1/volumes/${row.id}`)).sizeBytes > 0);
        await job.service.ok("DELETE", session.path);
        await job.service.ok("DELETE", `/v1/volumes/${row.id}`);
        assert.ok(!existsSync(folderOf(row)));
    });

    test("a volume counts against the tenant's storage", async () => {
        const used = async () => (await job.service.ok("GET", "/v1/tenant")).quotas.fileStorageBytes.used;
        const session = await withMounts(volume("counted"));
        await bash(session, "head -c 3000000 /dev/urandom > /srv/counted/big");
        const before = await used(), [row] = await volumes("counted");
        const { sizeBytes, measuredAt } = await job.service.ok("GET", `/v1/volumes/${row.id}`);
        assert.ok(sizeBytes >= 3000000 && sizeBytes < 4000000, `${sizeBytes}`);
        assert.ok(measuredAt);
        assert.ok(await used() >= before + 2900000);
        await job.service.ok("DELETE", session.path);
        await job.service.ok("DELETE", `/v1/volumes/${row.id}`);
        assert.ok(await used() <= before + 100000);
    });

    test("one in use is not removed; one that is gone starts empty again", async () => {
        const session = await withMounts(volume("busy"));
        await bash(session, "echo old > /srv/busy/f");
        const [row] = await volumes("busy");
        const remove = () => job.service.request("DELETE", `/v1/volumes/${row.id}`);
        assertProblem(await remove(), 409, "volume_in_use");
        await job.service.ok("DELETE", session.path);
        assert.equal((await remove()).status, 204);
        assertProblem(await remove(), 404, "volume_not_found");
        assert.ok(!existsSync(folderOf(row)));
        assert.match(await bash(await withMounts(volume("busy")), "ls -A /srv/busy | wc -l"), /^0\n/);
        assert.notEqual((await volumes("busy"))[0].id, row.id);
    });

    test("one whose folder could not be removed is hidden at once, and gone after the next start", async () => {
        const { id } = await job.service.ok("POST", "/v1/volumes", { name: "lingers" });
        const session = await withMounts(volume("lingers"));
        await bash(session, "echo old > /srv/lingers/f");
        const sandbox = path.join(job.service.data, "sandboxes", "held"); // as a deleted session's that is not gone yet
        mkdirSync(sandbox);
        copyFileSync(path.join(job.service.data, "sandboxes", session.id, "spec.json"), path.join(sandbox, "spec.json"));
        await job.service.ok("DELETE", session.path);
        await job.service.ok("DELETE", `/v1/volumes/${id}`);
        assert.deepEqual(await volumes("lingers"), []);
        assert.ok(existsSync(path.join(folderOf({ id }), "f")));
        rmSync(sandbox, { recursive: true });
        await job.service.kill9();
        await job.service.restart();
        await eventually("the volume is removed", () => existsSync(folderOf({ id })), (there) => !there);
    });

    test("the same name is another volume for another tenant", async () => {
        await bash(await withMounts(volume("mine")), "echo mine > /srv/mine/f");
        const [row] = await volumes("mine");
        const { apiKey } = await createTenant(job.service, "another");
        const { body } = await job.service.request("GET", "/v1/volumes", { key: apiKey });
        assert.deepEqual(body.data, []);
        for (const method of ["GET", "DELETE"])
            assertProblem(await job.service.request(method, `/v1/volumes/${row.id}`, { key: apiKey }), 404, "volume_not_found");
        assert.ok(existsSync(folderOf(row)));
    });

    test("a fork has the same volume, not a copy; changes are told without what is mounted", async () => {
        const session = await withMounts(volume("forked"));
        await bash(session, "echo one > /srv/forked/f; echo mine > /workspace/w");
        const fork = new Session(job, await job.service.ok("POST", `${session.path}/fork`, {}));
        assert.match(await bash(fork, "cat /srv/forked/f /workspace/w; echo two > /srv/forked/f"), /^one\nmine\n/);
        assert.match(await bash(session, "cat /srv/forked/f"), /^two\n/);
        assert.deepEqual((await job.service.ok("GET", `${session.path}/diff?path=/srv`)).changes, []);
    });

    test("a folder of this machine is mounted read-only unless asked for, and its owner is root inside", async () => {
        const reader = await withMounts(bind(path.join(open, "repo")));
        assert.equal((await job.service.ok("GET", `/v1/environments/${reader.resource.environmentId}`)).mounts[0].readOnly, true);
        const said = await bash(reader, "cd /srv/bind; cat readme; stat -c %u:%g readme; echo more >> readme");
        assert.match(said, /^read me\n0:0\n/);
        assert.match(said, /Read-only file system/);
        const writer = await withMounts(bind(path.join(open, "repo"), { readOnly: false }));
        await bash(writer, "echo made > /srv/bind/made");
        assert.equal(readFileSync(path.join(open, "repo", "made"), "utf8"), "made\n");
        assert.equal(statSync(path.join(open, "repo", "made")).uid, OWNER);
    });

    test("what lies outside of the allowed folders is refused, links followed, and what is not there alike", async () => {
        symlinkSync(path.join(world, "elsewhere"), path.join(open, "out"));
        const texts = [];
        assertPaths(await refusedMounts(bind("/")), ["/mounts/0/source"], "invalid_mount");
        for (const source of [path.join(world, "elsewhere"), "/etc", path.join(open, "out"), path.join(open, "none"),
            path.join(open, "repo", "readme"), `${open}-not`, job.service.data]) {
            const reply = await refusedMounts(bind(source));
            assertPaths(reply, ["/mounts/0"], "mount_not_allowed");
            texts.push(reply.body.errors[0].message.replace(source, "X"));
        }
        assert.equal(new Set(texts).size, 1, texts.join("\n"));
        assertPaths(await refusedMounts(bind(fixed, { readOnly: false })), ["/mounts/0"], "mount_not_allowed");
    });

    test("a folder that became a link to elsewhere is refused when the sandbox starts", async () => {
        const source = path.join(open, "swapped");
        mkdirSync(source);
        chownSync(source, OWNER, OWNER);
        const session = await withMounts(bind(source));
        renameSync(source, `${source}-away`);
        symlinkSync(path.join(world, "elsewhere"), source);
        const text = JSON.stringify(await session.run('CALL bash {"command":"cat /srv/bind/secret"} THEN SAY done'));
        assert.match(text, /cannot be mounted/);
        assert.doesNotMatch(text, /secret-of-the-host/);
    });

    test("serve refuses to allow what no sandbox may have", async () => {
        const data = path.join(world, "data-of-another"), link = path.join(world, "link");
        symlinkSync(open, link);
        for (const [list, why] of [["srv", /absolute paths/], ["/", /absolute paths/], [link, /is really/], [world, /data directory/],
            [`${open},/proc/sys`, /nothing of \/proc/], [path.join(world, "none"), /No such file/]])
            await assert.rejects(promisify(execFile)(SERVICE_PROGRAM, ["serve", "--data", data, "--listen", "127.0.0.1:0",
                "--allow-mount", list]), ({ code, stderr }) => code === 1 && why.test(stderr), list);
        const objects = path.join(world, "store", "objects"), program = path.dirname(path.resolve(SERVICE_PROGRAM));
        mkdirSync(objects, { recursive: true });
        for (const [list, why] of [[path.dirname(objects), /folder of objects/], [`${objects}:ro`, /folder of objects/],
            [program, /program .* must lie elsewhere, or the folder be allowed with :ro/]])
            await assert.rejects(promisify(execFile)(SERVICE_PROGRAM, ["serve", "--data", data, "--listen", "127.0.0.1:0",
                "--objects", objects, "--allow-mount", list]), ({ code, stderr }) => code === 1 && why.test(stderr), list);
    });

    test("what belongs to the host's root is never mounted writable", { skip: !isRoot && "needs root" }, async () => {
        const source = path.join(open, "roots");
        mkdirSync(source, { mode: 0o755 });
        writeFileSync(path.join(source, "all"), "for all\n", { mode: 0o644 });
        writeFileSync(path.join(source, "own"), "root's own\n", { mode: 0o600 });
        assertPaths(await refusedMounts(bind(source, { readOnly: false })), ["/mounts/0"], "mount_not_allowed");
        const said = await bash(await withMounts(bind(source)), "cd /srv/bind; cat all; cat own; stat -c %u all");
        assert.match(said, /^for all\n/);
        assert.match(said, /Permission denied/);
        assert.doesNotMatch(said, /root's own/);
    });

    test("the commands list volumes and remove one by its name", async () => {
        const session = await withMounts(volume("by-name"));
        await bash(session, "echo here > /srv/by-name/f");
        const run = (...args) => promisify(execFile)(SERVICE_PROGRAM, ["volume", ...args],
            { env: { PATH: process.env.PATH, PI_MANAGED_URL: job.service.url, PI_MANAGED_API_KEY: job.service.apiKey } });
        assert.match((await run("list")).stdout, /^vol_\S+ +by-name +\d/m);
        assert.match((await run("get", "by-name")).stdout, /sessions +1/);
        await assert.rejects(run("remove", "by-name"), /1 session uses the volume/);
        await job.service.ok("DELETE", session.path);
        const [row] = await volumes("by-name");
        assert.match((await run("remove", "by-name")).stdout, new RegExp(`^${row.id} deleted`));
        assert.ok(!existsSync(folderOf(row)));
    });

    test("no mount is left on the host when all is killed, and a restart goes on", async () => {
        const session = await withMounts(volume("killed"), bind(path.join(open, "repo")));
        await bash(session, "echo kept > /srv/killed/f");
        assert.equal(hostMounts(), atRest);
        await job.service.kill9();
        endInit(session);
        assert.equal(hostMounts(), atRest);
        await job.service.restart();
        assert.match(await bash(session, "cat /srv/killed/f /srv/bind/readme"), /^kept\nread me\n/);
    });

    test("a tenant that stores too much starts no sandbox that could write more", async () => {
        const session = await withMounts(volume("full"));
        await bash(session, "head -c 300000 /dev/urandom > /srv/full/f");
        await job.service.ok("GET", `/v1/volumes/${(await volumes("full"))[0].id}`);
        await promisify(execFile)(SERVICE_PROGRAM, ["tenant", "set", job.service.tenantId, "--limits", "fileStorageBytes=1000",
            "--data", job.service.data]);
        const tries = async (mount) => JSON.stringify(await (await withMounts(mount)).run('CALL bash {"command":"echo it-ran"} THEN SAY done'));
        assert.match(await tries(volume("full")), /fileStorageBytes/);
        assert.match(await tries(volume("full", { readOnly: true })), /it-ran/);
    });
});

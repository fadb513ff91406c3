// The command line over a running service: agents, environments, sessions, made, listed, found by name, changed.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { envOf, run } from "../support/cli.mjs";
import { startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const lines = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));

describe("the command line over the API", { skip: serviceMissing }, () => {
    let job;
    let folder;
    let modelOptions;
    before(async () => {
        folder = mkdtempSync(path.join(tmpdir(), "pi-managed-cli-api-"));
        job = await startJob();
        modelOptions = ["--model", "scripted/scripted-1", "--api", "openai-completions",
            "--base-url", job.model.baseUrl("openai-completions")];
    });
    after(async () => {
        await job?.stop();
        rmSync(folder, { recursive: true, force: true });
    });

    const pm = (args, options = {}) => run(args, { ...options, env: { ...envOf(job.service), ...options.env } });
    async function ok(...args) {
        const { code, stdout, stderr } = await pm(args);
        assert.equal(code, 0, `${args.join(" ")}: ${stderr}`);
        return stdout;
    }
    const json = async (...args) => JSON.parse(await ok(...args, "--json"));
    async function fails(pattern, ...args) {
        const { code, stdout, stderr } = await pm(args);
        assert.equal(code, 1, `${args.join(" ")}: ${stdout}${stderr}`);
        assert.match(stderr, pattern);
        assert.equal(stdout, "");
        return stderr;
    }

    test("an agent: made, shown, changed in versions, archived", async () => {
        const made = await json("agent", "create", "writer", ...modelOptions, "--system-prompt", "Be brief.",
            "--tools", "read,grep");
        assert.equal(made.systemPrompt, "Be brief.");
        assert.deepEqual(made.tools, { defaultConfig: { enabled: false },
            configs: [{ name: "read", enabled: true }, { name: "grep", enabled: true }] });
        assert.match(await ok("agent", "list"), new RegExp(`^${made.id} +writer +1 +scripted/scripted-1 `, "m"));
        const changed = await json("agent", "update", "writer", "--thinking", "low");
        assert.deepEqual(changed.model, { ...made.model, thinkingLevel: "low" }, "the model stays");
        assert.equal(changed.version, 2);
        assert.equal(lines(await ok("agent", "versions", "writer", "--json")).length, 2);
        assert.match(await ok("agent", "get", made.id), /^systemPrompt +Be brief\.$/m);
        assert.match(await ok("agent", "archive", "writer"), /archived/);
        assert.doesNotMatch(await ok("agent", "list"), /writer/);
        assert.match(await ok("agent", "list", "--archived"), /writer/);
        assert.match(await ok("agent", "get", "writer"), /^archivedAt +2/m);
        await ok("env", "create", "anywhere");
        await fails(/agent_archived/, "session", "create", "--agent", "writer", "--env", "anywhere");
    });

    test("fields from a file or standard input, and a prompt from a file", async () => {
        const file = path.join(folder, "agent.json");
        writeFileSync(file, JSON.stringify({ metadata: { team: "docs" } }));
        writeFileSync(path.join(folder, "prompt"), "First line.\nSecond.");
        const made = await json("agent", "create", "from file", "--from", file, ...modelOptions,
            "--system-prompt", `@${folder}/prompt`);
        assert.deepEqual(made.metadata, { team: "docs" });
        assert.equal(made.systemPrompt, "First line.\nSecond.");
        const { stdout } = await pm(["agent", "update", "from file", "--from", "-", "--json"],
            { input: JSON.stringify({ systemPrompt: null }) });
        assert.equal(JSON.parse(stdout).systemPrompt, null);
        await fails(/--from .*line 1/, "agent", "create", "x", "--from", path.join(folder, "prompt"));
        await fails(/there is no file .*nowhere/, "agent", "create", "x", "--from", path.join(folder, "nowhere"));
    });

    test("an environment: limits stay when one of them changes", async () => {
        const made = await json("env", "create", "small", "--pids", "100", "--idle-timeout", "60");
        assert.equal(made.idleTimeout, 60);
        const changed = await json("env", "update", "small", "--memory", "300");
        assert.deepEqual(changed.resources, { ...made.resources, pids: 100, memoryMiB: 300 });
        await fails(/--cpus many: give a number/, "env", "update", "small", "--cpus", "many");
        await fails(/nothing to change/, "env", "update", "small");
        assert.match(await ok("env", "delete", "small"), /deleted/);
        await fails(/there is no env small/, "env", "get", "small");
    });

    test("things are found by name, by the beginning of an id, or by their place; never by a guess", async () => {
        const first = await json("agent", "create", "reviewer", ...modelOptions);
        const second = await json("agent", "create", "reviewer two", ...modelOptions);
        assert.equal((await json("agent", "get", "reviewer")).id, first.id);
        assert.equal((await json("agent", "get", second.id.slice(0, -2))).id, second.id);
        assert.equal((await json("agent", "get", second.id.slice("agent_".length))).id, second.id);
        assert.equal((await json("agent", "get", "last")).id, second.id);
        await fails(/there is no agent review; do you mean .*reviewer/, "agent", "get", "review");
        await fails(/there is no agent revewer; do you mean reviewer\?/, "agent", "get", "revewer");
        await fails(/may be any of \d+ agents: .*Give more/, "agent", "archive", first.id.slice(0, 11));
        await fails(/there is no agent agent_/, "agent", "archive", "agent_");
    });

    test("a session: made, spoken to, listed, shown, deleted", async () => {
        await ok("agent", "create", "talker", ...modelOptions);
        await ok("env", "create", "room");
        const made = await json("session", "create", "--agent", "talker", "--env", "room", "--title", "A talk");
        assert.equal(made.status, "idle");
        const sent = await pm(["session", "send", "A talk", "SAY Good day.", "--tail"]);
        assert.equal(sent.code, 0, sent.stderr);
        assert.equal(sent.stdout, "Good day.\n", "a pipe gets the answer and nothing else");
        assert.match(sent.stderr, /done after .*: 1 model request, \d+ tokens in/);
        const posted = await json("session", "send", made.id, "SAY More.");
        assert.equal(posted.type, "user.message");
        assert.match(await ok("session", "list", "--agent", "talker"), new RegExp(`^${made.id} .*A talk$`, "m"));
        assert.equal(lines(await ok("session", "list", "--env", "room", "--json")).length, 1);
        assert.match(await ok("session", "get", "last"), /^title +A talk$/m);
        assert.match(await ok("session", "interrupt", made.id), /interrupted/);
        assert.match(await ok("session", "delete", made.id), /deleted/);
        await fails(/404 session_not_found.*session list shows/, "session", "get", made.id);
    });

    test("a message that waits can be taken back", async () => {
        const { id } = await job.session();
        await ok("session", "send", id, "HANG EARLY SAY one");
        await job.model.waitForRequest((request) => request.userText.startsWith("HANG EARLY"));
        const waiting = await json("session", "send", id, "SAY two");
        assert.match(await ok("session", "withdraw", id, waiting.id), /withdrawn/);
        const { data } = await job.service.ok("GET", `/v1/sessions/${id}/events?type=user.message`);
        assert.equal(data.find((event) => event.id === waiting.id).withdrawn, true);
        await ok("session", "interrupt", id);
        job.model.release();
    });

    test("lists can be cut, and say so", async () => {
        const { code, stdout, stderr } = await pm(["agent", "list", "--limit", "1", "--json"]);
        assert.equal(code, 0);
        assert.equal(lines(stdout).length, 1);
        assert.match(stderr, /There are more: --limit all/);
        await fails(/--limit 0: give a number from 1, or all/, "agent", "list", "--limit", "0");
        assert.ok(lines(await ok("agent", "list", "--limit", "all", "--json")).length > 2);
    });

    test("what the service refuses comes with its reasons", async () => {
        await fails(/\/resources\/cpus .*; \/resources\/memoryMiB /, "env", "create", "x", "--cpus", "900", "--memory", "1");
        await fails(/name_taken/, "agent", "create", "reviewer", ...modelOptions);
        await fails(/--model PROVIDER\/ID/, "agent", "create", "x");
        await fails(/--model words: give PROVIDER\/ID/, "agent", "create", "x", "--model", "words");
        await fails(/--api belongs to a model/, "session", "create", "--agent", "reviewer", "--api", "x");
    });

    test("no service, a wrong key, no key: each says what to do", async () => {
        const nobody = await pm(["agent", "list"], { env: { PI_MANAGED_URL: "http://127.0.0.1:9" } });
        assert.equal(nobody.code, 1);
        assert.match(nobody.stderr, /cannot reach http:\/\/127\.0\.0\.1:9.*pi-managed serve.*--url/);
        const wrong = await pm(["agent", "list"], { env: { PI_MANAGED_API_KEY: "pmk_wrong" } });
        assert.equal(wrong.code, 1);
        assert.match(wrong.stderr, /401.*PI_MANAGED_API_KEY.*key create/);
        assert.ok(!wrong.stderr.includes("pmk_wrong"));
        const none = await run(["agent", "list"], { env: { PI_MANAGED_URL: job.service.url }, cwd: folder });
        assert.match(none.stderr, /no API key: set PI_MANAGED_API_KEY.*pi-managed serve starts one/);
        for (const url of ["ftp://x", "127.0.0.1:7433", ""]) {
            const odd = await pm(["agent", "list", "--url", url]);
            assert.match(odd.stderr, /is no address of a service: give --url or PI_MANAGED_URL like http:/);
        }
        const tls = await pm(["agent", "list"], { env: { PI_MANAGED_URL: job.service.url.replace("http:", "https:") } });
        assert.match(tls.stderr, /Does the service speak TLS\? .*begins with http:/);
    });

    test("a slip of the pen is answered with where to look", async () => {
        for (const [words, said] of [
            [["session", "tail"], /this must be given: SESSION\nSee: pi-managed session tail --help\n$/],
            [["run", "--model"], /a value must follow --model\nSee: pi-managed run --help\n$/],
            [["sesion", "list"], /do you mean session list\?/],
            [["help", "nothing"], /there is no command nothing\nSee: pi-managed --help\n$/],
        ]) {
            const slip = await pm(words);
            assert.equal(slip.code, 2);
            assert.match(slip.stderr, said);
        }
        const help = await pm(["help", "session", "tail"]);
        assert.equal(help.stdout, (await pm(["session", "tail", "--help"])).stdout);
        assert.match((await pm(["help", "vault"])).stdout, /^ {2}vault create NAME/m);
    });

    test("an address that cannot be listened on makes no data directory", async () => {
        for (const listen of ["nonsense", "0.0.0.0:0"]) {
            const data = path.join(folder, "not-made");
            const refused = await run(["serve", "--data", data, "--listen", listen]);
            assert.equal(refused.code, 1);
            assert.match(refused.stderr, /--listen /);
            assert.ok(!existsSync(data));
        }
    });

    test("the first key of a data directory on this machine is found", async () => {
        writeFileSync(path.join(folder, "first-key"), `${job.service.apiKey}\n`);
        const { code, stderr } = await run(["agent", "list", "--data", folder],
            { env: { PI_MANAGED_URL: job.service.url } });
        assert.equal(code, 0, stderr);
    });

    test("a proxy of the environment is not used for this machine", async () => {
        const { code, stderr } = await pm(["agent", "list"], { env: { http_proxy: "http://127.0.0.1:9" } });
        assert.equal(code, 0, stderr);
    });

    test("names that turn a line around are shown harmlessly, and come to a program as they are", async () => {
        const title = "turned \u202eback";
        const { id } = await job.session();
        const { agentId, environmentId } = await job.service.ok("GET", `/v1/sessions/${id}`);
        await job.service.ok("POST", "/v1/sessions", { agent: agentId, environmentId, title });
        const list = await ok("session", "list", "--agent", agentId);
        assert.match(list, /turned \ufffdback/);
        assert.ok(lines(await ok("session", "list", "--agent", agentId, "--json")).some((s) => s.title === title));
    });

    test("a session gets another title, and another way to go on", async () => {
        const { id } = await job.session();
        assert.equal((await pm(["session", "send", id, "SAY one", "--tail"])).code, 0);
        assert.equal((await json("session", "update", id, "--title", "Renamed")).title, "Renamed");
        await fails(/nothing to change/, "session", "update", id);
        const forked = await json("session", "fork", id, "--title", "Other way");
        assert.notEqual(forked.id, id);
        assert.equal(forked.title, "Other way");
        const { stdout } = await pm(["session", "send", "Other way", "SAY two", "--tail"]);
        assert.equal(stdout, "two\n");
        await fails(/404|409|400/, "session", "fork", id, "--entry", "none");
    });

    test("a file goes up, is found by its name, and comes back; never over what is there", async () => {
        const content = "line one\n".repeat(10_000);
        writeFileSync(path.join(folder, "notes.txt"), content);
        const made = await json("file", "upload", path.join(folder, "notes.txt"));
        assert.deepEqual([made.name, made.sizeBytes], ["notes.txt", content.length]);
        assert.match(await ok("file", "list"), new RegExp(`^${made.id} +notes.txt +${content.length} `, "m"));
        assert.equal((await pm(["file", "download", "notes.txt", "--output", "-"])).stdout, content);
        const there = await pm(["file", "download", made.id], { cwd: folder });
        assert.equal(there.code, 1);
        assert.match(there.stderr, /notes\.txt is there already/);
        const copy = path.join(folder, "copy");
        assert.match(await ok("file", "download", made.id, "--output", copy), /copy: 90000 bytes/);
        assert.equal(readFileSync(copy, "utf8"), content);
        const other = await json("file", "upload", path.join(folder, "notes.txt"), "--name", ".hidden");
        assert.equal((await pm(["file", "download", other.id], { cwd: folder })).code, 0);
        assert.ok(readdirSync(folder).includes(other.id), "a hidden name is not taken");
        await ok("file", "delete", made.id);
        await fails(/404 file_not_found.*file list/, "file", "download", made.id);
        await fails(/read .*nowhere/, "file", "upload", path.join(folder, "nowhere"));
    });

    test("keys in a vault: set, replaced, used by a session, never shown, destroyed", async () => {
        const vault = await json("vault", "create", "team");
        const base = job.model.baseUrl("openai-completions");
        const added = await pm(["vault", "set", "team", base], { input: "sk-first-secret\n" });
        assert.equal(added.code, 0, added.stderr);
        assert.match(added.stdout, /added for http/);
        assert.match((await pm(["vault", "set", "team", base], { input: "sk-second-secret" })).stdout, /replaced for http/);
        const shown = await ok("vault", "keys", "team");
        assert.match(shown, /^cred_\w+ +http/m);
        assert.ok(!`${added.stdout}${shown}`.includes("secret"));
        const sent = await pm(["run", ...modelOptions, "--agent", "reviewer", "--env", "room", "--vault", vault.id, "SAY with a key"]);
        assert.equal(sent.stdout, "with a key\n", sent.stderr);
        assert.equal(job.model.requests.at(-1).headers.authorization, "Bearer sk-second-secret");
        assert.match((await pm(["vault", "check", "team", base])).stdout, /unknown: .*without a key/);
        job.model.listKey = "sk-second-secret";
        assert.match(await ok("vault", "check", "team", base), /^cred_\w+ valid$/m);
        job.model.listKey = "sk-first-secret";
        const checked = await pm(["vault", "check", "team", job.model.baseUrl("anthropic-messages"), "--api", "anthropic-messages", "--json"]);
        assert.deepEqual([checked.code, JSON.parse(checked.stdout).status], [1, "invalid"]);
        job.model.listKey = undefined;
        await fails(/has no key for openai/, "vault", "check", "team", "openai");
        await ok("vault", "unset", "team", base);
        await fails(/has no key for openai/, "vault", "unset", "team", "openai");
        assert.match((await pm(["vault", "set", "team", "openai"], { input: "\n" })).stderr, /no key came/);
        await ok("vault", "archive", "team");
    });

    test("what a session left is listed", async () => {
        const session = await job.session();
        await session.run('CALL bash {"command":"mkdir -p /mnt/session/outputs; echo 42 > /mnt/session/outputs/answer.txt"} THEN SAY ok');
        assert.match(await ok("file", "list", "--session", session.id), / answer\.txt +3 /);
        assert.equal((await pm(["file", "download", "answer.txt", "--output", "-"])).stdout, "42\n");
    });

    test("other words for the same verb are understood", async () => {
        for (const words of [["agent", "ls"], ["environment", "list"], ["agent", "show", "reviewer"]]) {
            await ok(...words);
        }
        await ok("env", "new", "short-lived");
        await ok("env", "rm", "short-lived");
        const { code, stderr } = await pm(["run", "two", "words"]);
        assert.equal(code, 2);
        assert.match(stderr, /needs quotes.*words/);
    });

    test("a family named alone lists its verbs", async () => {
        const { code, stdout } = await run(["session", "--help"]);
        assert.equal(code, 0);
        for (const verb of ["create", "list", "get", "send", "tail", "interrupt", "delete"]) {
            assert.match(stdout, new RegExp(`^ {2}session ${verb}`, "m"));
        }
        assert.equal((await run(["session"])).code, 2);
    });
});

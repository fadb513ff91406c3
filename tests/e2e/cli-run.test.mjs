// pi-managed run and session tail: watching turns, over lost connections and restarts.
import assert from "node:assert/strict";
import net from "node:net";
import { after, before, describe, test } from "node:test";
import { envOf, run, startCli } from "../support/cli.mjs";
import { startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";
import { openShell } from "../support/shell.mjs";

const events = (text) => text.split("\n").filter(Boolean).map((line) => JSON.parse(line));

/** Forwards to a service that may change; cut() breaks all connections and takes no new ones until mend(). */
class Line {
    #sockets = new Set();
    #server = net.createServer((client) => this.#forward(client));
    #down = false;

    async open(url) {
        this.target = new URL(url);
        await new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
        this.url = `http://127.0.0.1:${this.#server.address().port}`;
        return this;
    }

    #forward(client) {
        if (this.#down) {
            client.destroy();
            return;
        }
        const server = net.connect(this.target.port, this.target.hostname);
        for (const [socket, other] of [[client, server], [server, client]]) {
            this.#sockets.add(socket);
            socket.on("error", () => {}).on("close", () => other.destroy()).pipe(other);
        }
    }

    cut() {
        this.#down = true;
        this.#sockets.forEach((socket) => socket.destroy());
        this.#sockets.clear();
    }

    mend(url = this.target) {
        this.target = new URL(url);
        this.#down = false;
    }

    close() {
        this.cut();
        this.#server.close();
    }
}

describe("run and tail", { skip: serviceMissing }, () => {
    let job;
    let line;
    let modelOptions;
    before(async () => {
        job = await startJob();
        line = await new Line().open(job.service.url);
        modelOptions = ["--model", "scripted/scripted-1", "--api", "openai-completions",
            "--base-url", job.model.baseUrl("openai-completions")];
    });
    after(async () => {
        line?.close();
        await job?.stop();
    });
    const env = (more) => ({ ...envOf(job.service), PI_MANAGED_URL: line.url, ...more });
    const pm = (...args) => run(args, { env: env() });
    /** Until the model hangs in answering this, in the turn's first request or in a later one. */
    async function hanging(text, { later = false } = {}) {
        const request = await job.model.waitForRequest(({ userText, conversation }) => userText.includes(text)
            && conversation.messages.some((message) => message.role === "assistant") === later);
        await request.stalled;
    }

    test("run asks for a model once, makes what is missing, and then needs the prompt alone", async () => {
        const unclear = await pm("run", "SAY hello");
        assert.equal(unclear.code, 1);
        assert.match(unclear.stderr, /no agent default yet.*--model PROVIDER\/ID/);
        const first = await pm("run", ...modelOptions, "THINK so. CALL bash {\"command\":\"echo 42\"} THEN SAY It is $RESULT");
        assert.equal(first.code, 0, first.stderr);
        assert.equal(first.stdout.trimEnd(), "It is 42");
        assert.match(first.stderr, /made the agent default.*made the env default.*session sess_.*thought: so\..*bash echo 42.*done after/s);
        const second = await pm("run", "SAY hello");
        assert.equal(second.stdout, "hello\n");
        assert.doesNotMatch(second.stderr, /made the/);
        const goesOn = await pm("run", "--session", "last", "SAY again");
        assert.equal(goesOn.stdout, "again\n");
        const both = await pm("run", "--session", "last", "--model", "a/b", "SAY again");
        assert.equal(both.code, 1);
        assert.match(both.stderr, /--model is for a new session/);
        const [newest] = (await job.service.ok("GET", "/v1/sessions?limit=1")).data;
        assert.match(second.stderr, new RegExp(newest.id), "the same session");
    });

    test("a model in the options of a later run is that session's alone", async () => {
        const { code, stderr } = await pm("run", ...modelOptions.with(1, "scripted/other"), "SAY hello");
        assert.equal(code, 0, stderr);
        assert.equal(job.model.requests.at(-1).model, "other");
        const { data } = await job.service.ok("GET", "/v1/agents?name=default");
        assert.equal(data[0].model.id, "scripted-1");
    });

    test("a prompt from standard input, with every character it has", async () => {
        const input = "SAY \"a\\nb \u00e9 \ud83d\ude00\"";
        const { code, stdout, stderr } = await run(["run", "-"], { env: env(), input });
        assert.equal(code, 0, stderr);
        assert.equal(stdout, "a\nb é 😀\n");
    });

    test("the exit status says how the turn ended", async () => {
        const failed = await pm("run", "FAIL 400");
        assert.equal(failed.code, 3);
        assert.match(failed.stderr, /! model_bad_request/);
        const interrupted = startCli(["run", "HANG EARLY SAY status"], { env: env() });
        await hanging("SAY status");
        const [, id] = await interrupted.says(/session (sess_\w+)/);
        assert.equal((await pm("session", "interrupt", id)).code, 0);
        assert.equal((await interrupted.ended).code, 3);
        assert.match(interrupted.stderr, /· interrupted after/);
        assert.equal((await pm("session", "tail", id)).code, 3, "of a turn that is over, too");
        job.model.release();
    });

    test("a budget ends the turn, and the status says that it did", async () => {
        const asked = await pm("run", "--max-tokens", "many", "SAY x");
        assert.match(asked.stderr, /--max-tokens many: give a number/);
        const { code, stderr } = await pm("run", "--max-tokens", "1", "SAY too much");
        assert.equal(code, 3, stderr);
        assert.match(stderr, /budget_exhausted/);
    });

    test("--json gives each event once, as the API does", async () => {
        const { code, stdout } = await pm("run", "--json", "SAY hello");
        assert.equal(code, 0);
        const seen = events(stdout);
        assert.deepEqual(seen.map((event) => event.seq), seen.map((_, i) => i + 1));
        assert.equal(seen.at(-1).type, "session.status_idle");
        const { data } = await job.service.ok("GET", `/v1/sessions/${seen[0].sessionId}/events?limit=1000`);
        assert.deepEqual(seen.map((event) => event.id), data.map((event) => event.id));
        const grown = events((await pm("run", "--json", "--deltas", "SAY hello")).stdout);
        assert.ok(grown.some((event) => event.type === "event_delta"));
    });

    test("tail shows the last turn and ends; --after and --all say from where", async () => {
        const session = await job.session();
        await session.run("SAY first");
        await session.run("SAY second");
        const last = await pm("session", "tail", session.id);
        assert.equal(last.code, 0, last.stderr);
        assert.equal(last.stdout, "second\n");
        assert.match(last.stderr, /^You SAY second$/m);
        const first = await pm("session", "tail", session.id, "--after", "0");
        assert.equal(first.stdout, "first\n");
        const all = startCli(["session", "tail", session.id, "--all"], { env: env() });
        await all.says(/^first\nsecond\n$/);
        await session.run("SAY third");
        await all.says(/^first\nsecond\nthird\n$/);
        all.child.kill("SIGINT");
        assert.equal((await all.ended).code, 130);
    });

    test("Ctrl-C ends the watching, says so, and leaves the session at work", async () => {
        const cli = startCli(["run", "HANG EARLY SAY later"], { env: env() });
        await hanging("SAY later");
        const [, id] = await cli.says(/session (sess_\w+)/);
        await cli.says(/session sess_/);
        cli.child.kill("SIGINT");
        assert.equal((await cli.ended).code, 130);
        assert.match(cli.stderr, /Stopped watching; the session goes on/);
        assert.match(cli.stderr, new RegExp(`session tail ${id}`));
        assert.equal((await job.service.ok("GET", `/v1/sessions/${id}`)).status, "running");
        job.model.release();
        const rest = await pm("session", "tail", id);
        assert.deepEqual([rest.code, rest.stdout], [0, "later\n"], rest.stderr);
    });

    test("a lost connection is taken up again: every event once, the answer whole", async () => {
        const cli = startCli(["run", "--json", "SAY one CALL bash {\"command\":\"true\"} THEN HANG EARLY SAY two"],
            { env: env() });
        await hanging("SAY one", { later: true });
        await cli.says(/"type":"agent\.tool_result"/);
        line.cut();
        await cli.says(/connection lost, trying again/);
        line.mend();
        job.model.release();
        assert.equal((await cli.ended).code, 0, cli.stderr);
        const seen = events(cli.stdout);
        assert.deepEqual(seen.map((event) => event.seq), seen.map((_, i) => i + 1));
        assert.equal(seen.findLast((event) => event.type === "agent.message").content[0].text, "two");
        assert.equal(cli.stderr.match(/connection lost/g).length, 1, "said once for each loss");
    });

    test("the service may be restarted meanwhile", async () => {
        const cli = startCli(["run", "SAY before CALL bash {\"command\":\"sleep 2; echo survived\"} THEN SAY $RESULT"],
            { env: env() });
        await cli.says(/▸ bash/);
        await job.service.kill9();
        line.cut();
        await cli.says(/connection lost/);
        await job.service.restart();
        line.mend(job.service.url);
        assert.equal((await cli.ended).code, 0, cli.stderr);
        assert.match(cli.stdout, /^before\n/);
        assert.match(cli.stderr, /survived/, "the result of the call that went on");
    });

    test("a session that is deleted meanwhile ends the watching with an error", async () => {
        const cli = startCli(["run", "HANG EARLY SAY deleted"], { env: env() });
        await hanging("SAY deleted");
        const [, id] = await cli.says(/session (sess_\w+)/);
        await job.service.ok("DELETE", `/v1/sessions/${id}`);
        assert.equal((await cli.ended).code, 1);
        assert.match(cli.stderr, /was deleted/);
        job.model.release();
    });

    test("on a terminal the output of a tool grows, and stands there once", async () => {
        const command = JSON.stringify({ command: "seq -f %.0f-is-followed-by-much-that-no-terminal-of-eighty-columns-shows-in-one-row-of-its-own 1 30; "
            + "until test -e go; do sleep 0.05; done; echo last" });
        const growing = startCli(["run", `CALL bash ${command} THEN SAY done`], { env: env({ TERM: "xterm" }), terminal: true });
        await growing.says(/… 18 more lines: 30/);
        const [session] = (await job.service.ok("GET", "/v1/sessions?limit=1")).data;
        const shell = await openShell(job.service, session.id);
        shell.type("touch go; exit\n");
        await shell.ended;
        assert.equal((await growing.ended).code, 0, growing.stdout);
        const text = growing.stdout.replace(/\x1b\[[0-9;]*[mK]/g, "");
        assert.equal(text.match(/^ {4}7-is-followed/gm).length, 1, text);
        for (const [row] of text.matchAll(/ *… \d+ more lines: [^\r\n]*/g)) {
            assert.ok(row.length < 80, row);
        }
        assert.match(text, / {4}… 19 more lines\r?\n/);
    });

    test("on a terminal the answer grows, and nothing in it steers the terminal", async () => {
        const cli = startCli(["run", "HANG AT 900 SAY \"Hel\\u001b[31mlo there, this is a long answer to watch as it grows and "
            + "grows and grows\""], { env: env({ TERM: "xterm" }), terminal: true });
        await cli.says(/Pi {2}\S* *Hel/);
        await hanging("SAY \"Hel");
        assert.doesNotMatch(cli.stdout, /done after/);
        job.model.release();
        await cli.ended;
        assert.match(cli.stdout.replaceAll(/\x1b\[\d*m/g, ""), /^Pi {2}Hel\ufffd\[31mlo there, .*grows\r?$/m);
        assert.equal(cli.stdout.match(/lo there/g).length, 1, "what grew is not said again");
        assert.ok(!cli.stdout.includes("Hel\x1b[31m"));
    });
});

// README.md: what a reader copies from "Run it" works, one command after the other, with the scripted model in
// the place of the real one.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { envOf, run } from "../support/cli.mjs";
import { startJob } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const page = readFileSync(new URL("../../README.md", import.meta.url), "utf8");
const section = /^## Run it$([^]*?)^## /m.exec(page)[1];
const [first, ...rest] = [...section.matchAll(/^```sh\n([^]*?)^```/gm)].map(([, block]) => block.trimEnd().split("\n"));
const CATALOGUE_MODEL = /--model (\S+)/;

/** Writes a haiku and shows it, as the task wants. */
function poet({ conversation }) {
    const answers = conversation.messages.filter((message) => message.role === "assistant").length;
    const script = [
        { calls: [{ name: "write", args: { path: "poem.txt", content: "An old silent pond\n" } },
            { name: "bash", args: { command: "cat poem.txt" } }] },
        { say: "An old silent pond" },
    ];
    return script[answers] ?? { say: "And the sea." };
}

describe("README.md", { skip: serviceMissing }, () => {
    let job;
    let folder;
    before(async () => {
        folder = mkdtempSync(path.join(tmpdir(), "pi-managed-readme-"));
        symlinkSync(path.dirname(SERVICE_PROGRAM), path.join(folder, "build"));
        job = await startJob({ model: { script: poet } });
    });
    after(async () => {
        await job?.stop();
        rmSync(folder, { recursive: true, force: true });
    });
    const shell = (command) => run(["-c", command], { program: "sh", cwd: folder, env: envOf(job.service) });
    const scripted = (command) => command.replace(CATALOGUE_MODEL,
        `--model scripted/scripted-1 --api openai-completions --base-url ${job.model.baseUrl("openai-completions")}`);

    test("begins with doctor and serve", async () => {
        assert.deepEqual(first.map((line) => line.split(/ {2,}#/)[0]), ["build/pi-managed doctor", "build/pi-managed serve"]);
        for (const line of first) {
            assert.equal((await shell(`${line.split("#")[0]} --help`)).code, 0);
        }
    });

    test("each command does what is said, and needs no curl", async () => {
        const commands = rest.flat();
        assert.ok(commands.length > 8);
        assert.doesNotMatch(section, /curl/);
        const said = {};
        for (const line of commands.filter((one) => !one.startsWith("export "))) {
            assert.match(line, /^build\/pi-managed /);
            const needsTerminal = line.startsWith("build/pi-managed shell ");
            const { code, stdout, stderr } = await shell(needsTerminal ? line.replace(/ last.*/, " --help") : scripted(line));
            assert.equal(code, 0, `${line}\n${stdout}${stderr}`);
            const [, verb] = /pi-managed ((?:agent |env |session )?\w+)/.exec(line);
            said[verb] = [...said[verb] ?? [], stdout];
        }
        assert.deepEqual(said.run.map((text) => text.trim()), ["An old silent pond", "And the sea."]);
        assert.match(said.diff[0], /^A .*poem\.txt$/m);
        assert.match(said.why[0], /^2 turns in .*2 tool calls/m);
        assert.ok(readdirSync(folder).some((name) => /^sess_\w+\.jsonl$/.test(name)), "export has left a file");
        assert.match(said["session tail"][0], /\S/);
        const { title } = JSON.parse(said["session list"][0]);
        assert.equal(title, "A look at main.c");
        assert.ok(!existsSync(path.join(folder, "pi-managed-data")), "nothing else is left");
    });

    test("its models are in the catalogue", async () => {
        for (const [, model] of rest.flat().join("\n").matchAll(new RegExp(CATALOGUE_MODEL, "g"))) {
            const { code, stderr } = await run(["agent", "create", `of ${model} ${Math.random()}`, "--model", model],
                { env: envOf(job.service) });
            assert.equal(code, 0, stderr);
        }
    });

    test("an answer in a pipe is the answer alone", async () => {
        assert.match(section, /`poem=\$\(build\/pi-managed run "…"\)`/);
        const { stdout } = await shell('poem=$(build/pi-managed run "again" 2>/dev/null); echo "<$poem>"');
        assert.equal(stdout, "<An old silent pond>\n");
    });
});

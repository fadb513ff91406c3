// R44: context files and skills in the sandbox's working directory reach the model as they would with a local Pi,
// whose own loaders are asked about a copy of the same tree.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { RUNTIME } from "../support/host-driver.mjs";
import { startJob, textOf, types } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const skill = (name, description, more = "") => `---\nname: ${name}\ndescription: ${description}\n${more}---\nBody of ${name}\n`;
/** Paths in the working directory → content; a link's target is {to}. */
const TREE = {
    "AGENTS.md": "Always say please.\nÄ 😀 <tag> & \"quotes\"",
    "CLAUDE.md": "not this one: AGENTS.md comes first\n",
    ".pi/skills/top.md": skill("top", "A skill of one file"),
    ".pi/skills/no-description.md": "---\nname: nothing\n---\nx\n",
    ".pi/skills/plain.md": "no front matter\n",
    ".pi/skills/broken/SKILL.md": "---\nname: [\n---\n",
    ".pi/skills/deep/er/SKILL.md": skill("deeper", "Lies two folders down with 'quotes' & <marks>"),
    ".pi/skills/deep/er/other.md": skill("other", "is part of deeper"),
    ".pi/skills/deep/er/inner/SKILL.md": skill("inner", "is part of deeper, too"),
    ".pi/skills/deep/loose.md": skill("loose", "Only the top has skills of one file"),
    ".pi/skills/unnamed/SKILL.md": "---\ndescription: Named after its folder\n---\n",
    ".pi/skills/secret/SKILL.md": skill("secret", "The model must not be told", "disable-model-invocation: true\n"),
    ".pi/skills/.hidden/SKILL.md": skill("hidden", "no"),
    ".pi/skills/node_modules/x/SKILL.md": skill("module", "no"),
    ".agents/skills/shared/SKILL.md": skill("shared", "Of the agents folder"),
    ".agents/skills/top/SKILL.md": skill("top", "Its name is taken"),
    ".agents/skills/single.md": skill("single", "The top of this folder has none"),
    ".agents/skills/group/one.md": skill("one", "Below it there are some"),
    ".pi/skills/empty/SKILL.md": "",
    ".pi/skills/empty/inner/SKILL.md": skill("below-empty", "The empty file owns the folder"),
    ".pi/skills/linked": { to: "../../elsewhere" },
    "elsewhere/SKILL.md": skill("linked", "Behind a link"),
    "sub/AGENTS.md": "of a folder below: not this one\n",
};

function copyTree(root, tree) {
    for (const [name, content] of Object.entries(tree)) {
        const file = path.join(root, name);
        mkdirSync(path.dirname(file), { recursive: true });
        if (content.to) {
            symlinkSync(content.to, file);
        } else {
            writeFileSync(file, content);
        }
    }
}

/** What the service's model is to see of the tree, by Pi's own loaders: {agentsFiles, skills}. */
async function askPi(dir, tree = TREE) {
    const pi = await import(pathToFileURL(path.join(RUNTIME, "pi/dist/bundle/index.js")));
    const cwd = path.join(dir, "workspace");
    copyTree(cwd, tree);
    const settingsManager = pi.SettingsManager.inMemory({});
    settingsManager.isProjectTrusted = () => true;
    const loader = new pi.DefaultResourceLoader({ cwd, agentDir: path.join(dir, "agent"), settingsManager });
    await loader.reload();
    const inside = (text) => text.replaceAll(cwd, "/workspace");
    const { agentsFiles } = loader.getAgentsFiles();
    const { skills } = loader.getSkills();
    const mine = skills.filter((one) => one.filePath.startsWith(cwd))
        .map((one) => ({ ...one, filePath: inside(one.filePath) }));
    return {
        agentsFiles: agentsFiles.filter((one) => one.path.startsWith(cwd)),
        skills: mine, prompt: pi.formatSkillsForPrompt(mine),
    };
}

describe("the working directory's own instructions", { skip: serviceMissing }, () => {
    let job, dir, expected;
    before(async () => {
        dir = mkdtempSync(path.join(tmpdir(), "workdir-"));
        expected = await askPi(dir);
        job = await startJob();
    });
    after(async () => {
        await job?.stop();
        rmSync(dir, { recursive: true, force: true });
    });

    const bash = (command) => `CALL bash ${JSON.stringify({ command })} THEN SAY done`;
    const prompt = () => job.model.requests.at(-1).parsed.messages
        .filter((one) => one.role === "system" || one.role === "developer")
        .map((one) => typeof one.content === "string" ? one.content : textOf(one)).join("\n");
    const write = Object.entries(TREE).map(([name, content]) => content.to
        ? `mkdir -p "$(dirname ${name})" && ln -s ${content.to} ${name}`
        : `mkdir -p "$(dirname ${name})" && echo ${Buffer.from(content).toString("base64")} | base64 -d > ${name}`)
        .join("\n");

    async function sessionWith(command, fields) {
        const session = await job.session(fields);
        const events = await session.run(bash(command));
        assert.equal(events.find((one) => one.type === "agent.tool_result").isError, false,
            textOf(events.find((one) => one.type === "agent.tool_result")));
        return session;
    }

    test("Pi finds something in this tree", () => {
        assert.deepEqual(expected.agentsFiles.map((one) => one.content), [TREE["AGENTS.md"]]);
        assert.deepEqual(expected.skills.map((one) => one.name).sort(),
            ["deeper", "linked", "one", "secret", "shared", "top", "unnamed"]);
    });

    test("to Pi an empty file counts, too", async () => {
        const { agentsFiles } = await askPi(path.join(dir, "empty"), { "AGENTS.override.md": "", "AGENTS.md": "x" });
        assert.deepEqual(agentsFiles.map((one) => one.content), [""]);
    });

    test("a session that wakes knows its context files and skills as a local Pi would", async () => {
        const session = await sessionWith(write);
        assert.ok(!prompt().includes("Always say please"), "the first turn began in an empty folder");
        await job.service.restart();
        await session.run("SAY hello");
        const seen = prompt();
        assert.ok(seen.includes(TREE["AGENTS.md"]), seen);
        assert.ok(!seen.includes("not this one"), seen);
        for (const one of expected.skills.filter((each) => !each.disableModelInvocation)) {
            for (const part of [one.name, one.filePath]) {
                assert.ok(seen.includes(`>${part}<`), `${part} in ${seen}`);
            }
        }
        const block = (text) => text.match(/ {2}<skill>[^]*?<\/skill>/g).sort();
        assert.deepEqual(block(seen), block(expected.prompt));
        const second = await session.run(bash("cat AGENTS.md"));
        assert.equal(second.at(-1).stopReason.type, "end_turn");
    });

    test("an agent can be told to leave them alone", async () => {
        const session = await sessionWith(write, { projectContext: false });
        await job.service.restart();
        await session.run("SAY hello");
        assert.ok(!prompt().includes("Always say please") && !prompt().includes("<skill>"));
    });

    test("what changes in the folder is known at the next wake; override and links count", async () => {
        const session = await sessionWith("echo first > target.md; ln -s target.md CLAUDE.md");
        await job.service.restart();
        await session.run(bash("echo second > AGENTS.override.md"));
        assert.ok(prompt().includes("first"));
        await job.service.restart();
        await session.run("SAY hello");
        assert.ok(prompt().includes("second"));

        await session.run(bash(": > AGENTS.override.md"));
        await job.service.restart();
        await session.run("SAY hello");
        assert.ok(!prompt().includes("second") && !prompt().includes("first"), "an empty file hides the others");
    });

    test("nothing that is put there keeps a session from waking", async () => {
        const session = await sessionWith(["mkfifo AGENTS.md", "ln -s /dev/zero CLAUDE.md",
            "mkdir -p .pi/skills/a .pi/skills/b .agents", "ln -s /proc/self/pagemap .pi/skills/a/SKILL.md",
            "mkfifo .pi/skills/b/SKILL.md", "ln -s .. .pi/skills/loop", "truncate -s 1G .pi/skills/big.md",
            "printf '\\377\\376 bytes \\0' > AGENTS.MD", "ln -s /workspace/.agents/skills .agents/skills",
            "echo '--no-config' > .ripgreprc"].join("\n"));
        await job.service.restart();
        const events = await session.run("SAY awake");
        assert.equal(types(events).includes("session.error"), false);
        assert.equal(events.at(-1).stopReason.type, "end_turn");
        assert.ok(prompt().includes("bytes"));
    });
});

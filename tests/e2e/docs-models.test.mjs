// docs/models.md: what a reader copies from it works. Agents of the catalogue can be made as written;
// those of local servers also run a turn, with the scripted model listening where theirs would.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { Session, startJob, textOf } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const page = readFileSync(new URL("../../docs/models.md", import.meta.url), "utf8");
const [beforeVaults, vaults] = page.split(/^## Keys of tenants/m);
const sections = beforeVaults.split(/^### /m).slice(1).map((text) => ({ name: /^.*/.exec(text)[0], text }));
const bodyIn = (text) => {
    const body = /^post \/v1\/agents '(.*)'$/m.exec(text)?.[1];
    return body && JSON.parse(body);
};

describe("docs/models.md", { skip: serviceMissing }, () => {
    let job;
    before(async () => (job = await startJob()));
    after(() => job?.stop());

    test("has an agent for each provider and server", () => {
        assert.deepEqual(sections.filter(({ text }) => bodyIn(text)).map(({ name }) => name),
            ["Anthropic", "OpenAI", "Google", "OpenRouter", "llama.cpp", "Ollama", "vLLM", "On another machine"]);
    });

    for (const { name, text } of sections.filter((section) => bodyIn(section.text))) {
        const body = bodyIn(text);
        test(`${name}: the agent can be made`, async () => {
            const agent = await job.service.ok("POST", "/v1/agents", body);
            assert.equal(agent.model.id, body.model.id);
            if (body.model.baseUrl) {
                const { host } = new URL(body.model.baseUrl);
                assert.ok(text.includes(`serve --allow-private ${host}`), "and its host is opened");
            }
        });

        test(`${name}: a turn runs`, { skip: !body.model.baseUrl }, async () => {
            const { pathname } = new URL(body.model.baseUrl);
            const model = { ...body.model, baseUrl: job.model.url + pathname };
            const session = await job.session({ model, api: body.model.api });
            const events = await session.run("SAY hello from here");
            assert.equal(textOf(events.find(({ type }) => type === "agent.message")), "hello from here");
            assert.equal(job.model.requests.at(-1).model, body.model.id);
        });
    }

    test("keys through the API: the posts work in order, and the key goes to its server", async () => {
        const posts = [...vaults.matchAll(/^post (\S+) '(.*)'$/gm)].map(([, target, body]) => ({ target, body }));
        assert.equal(posts.length, 5);
        const ids = { env: (await job.environment()).id };
        const fill = (text) => text.replace(/\b(vault|agent|env)_…/g, (_, kind) => ids[kind])
            .replaceAll("https://models.example.com", job.model.url).replaceAll("…", "xyz");
        let made;
        for (const { target, body } of posts) {
            made = await job.service.ok("POST", fill(target), fill(body));
            const kind = /^(vault|agent|sess)_/.exec(made.id)?.[1];
            ids[kind] = made.id;
        }
        const events = await new Session(job, made).run("SAY keyed");
        assert.equal(textOf(events.find(({ type }) => type === "agent.message")), "keyed", JSON.stringify(events));
        assert.equal(job.model.requests.at(-1).headers.authorization, "Bearer xyz");
    });

    test("the codes in the table are the service's", () => {
        const protocol = readFileSync(new URL("../../src/broker/protocol.h", import.meta.url), "utf8");
        const codes = [...page.matchAll(/^\| `(\w+)`(?:, `(\w+)`)? \|/gm)].flatMap((m) => [m[1], m[2]].filter(Boolean));
        assert.ok(codes.length >= 10);
        for (const code of codes) {
            assert.ok(protocol.includes(code), code);
        }
    });

    test("the variables are those that serve takes", () => {
        const table = readFileSync(new URL("../../src/parent/credentials.c", import.meta.url), "utf8");
        const taken = [...table.matchAll(/"(\w+_API_KEY)"/g)].map((m) => m[1]);
        for (const [, variable] of page.matchAll(/\b([A-Z]+_API_KEY)\b/g)) {
            assert.ok(taken.includes(variable), variable);
        }
    });
});

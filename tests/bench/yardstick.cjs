// The yardstick of tests/bench/api.mjs: what the service does for sessions, written the usual way on Fastify and
// better-sqlite3. Arguments: folder of packages, database, better-sqlite3 or node:sqlite, the agent that sessions hold.
// Prints its port. Not a test, not part of the product.
const { createRequire } = require("node:module");
const { randomBytes } = require("node:crypto");
const [packages, file, engine, definition] = process.argv.slice(2);
const load = createRequire(`${packages}/`);
const app = load("fastify")();

function open() {
    if (engine === "better-sqlite3") {
        return new (load(engine))(file);
    }
    const { DatabaseSync } = require("node:sqlite");
    const own = new DatabaseSync(file);
    own.transaction = (fn) => (...args) => {
        own.exec("BEGIN IMMEDIATE");
        const result = fn(...args);
        own.exec("COMMIT");
        return result;
    };
    return own;
}

const db = open();
db.exec("PRAGMA journal_mode = WAL");
db.exec("PRAGMA synchronous = FULL");
db.exec(`CREATE TABLE agents (tenant_id TEXT, id TEXT, definition TEXT, PRIMARY KEY (tenant_id, id));
    CREATE TABLE environments (tenant_id TEXT, id TEXT, definition TEXT, PRIMARY KEY (tenant_id, id));
    CREATE TABLE sessions (tenant_id TEXT, id TEXT, agent_id TEXT, agent TEXT, environment_id TEXT, environment TEXT,
        title TEXT, metadata TEXT, status TEXT, created_at INTEGER, updated_at INTEGER, PRIMARY KEY (tenant_id, id));
    CREATE INDEX sessions_by_age ON sessions (tenant_id, created_at, id);`);
db.prepare("INSERT INTO agents VALUES ('t', 'agent_01MCC5RM008WXF1W76TSSHS283', ?)").run(definition);
db.prepare("INSERT INTO environments VALUES ('t', 'env_01MCC5RM008WXF1W76TSSHS283', ?)").run(definition);

const agentOf = db.prepare("SELECT definition FROM agents WHERE tenant_id = ? AND id = ?");
const environmentOf = db.prepare("SELECT definition FROM environments WHERE tenant_id = ? AND id = ?");
const insert = db.prepare("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'idle', ?, ?)");
const find = db.prepare("SELECT * FROM sessions WHERE tenant_id = ? AND id = ?");
const list = db.prepare("SELECT * FROM sessions WHERE tenant_id = ? ORDER BY created_at DESC, id DESC LIMIT ?");

const show = (row) => ({ id: row.id, type: "session", status: row.status, title: row.title, agent: JSON.parse(row.agent),
    agentId: row.agent_id, environmentId: row.environment_id, metadata: JSON.parse(row.metadata),
    createdAt: new Date(row.created_at).toISOString(), updatedAt: new Date(row.updated_at).toISOString() });
const create = db.transaction((body) => {
    const now = Date.now(), id = `sess_${randomBytes(13).toString("hex").toUpperCase()}`;
    insert.run("t", id, body.agent, agentOf.get("t", body.agent).definition, body.environmentId,
        environmentOf.get("t", body.environmentId).definition, body.title, JSON.stringify(body.metadata), now, now);
    return find.get("t", id);
});

app.addHook("onRequest", async (request, reply) => {
    reply.header("x-request-id", randomBytes(8).toString("hex"));
    if (!request.headers.authorization?.startsWith("Bearer ")) {
        return reply.code(401).send();
    }
});
app.post("/v1/sessions", { schema: { body: { type: "object", required: ["agent", "environmentId"], properties: {
    agent: { type: "string" }, environmentId: { type: "string" }, title: { type: "string" }, metadata: { type: "object" } } } } },
async (request, reply) => reply.code(201).send(show(create(request.body))));
app.get("/v1/sessions/:id", async (request) => show(find.get("t", request.params.id)));
app.get("/v1/sessions", async (request) => {
    const limit = Number(request.query.limit ?? 20), rows = list.all("t", limit + 1);
    return { data: rows.slice(0, limit).map(show), hasMore: rows.length > limit };
});
app.listen({ port: 0, host: "127.0.0.1" }).then(() => console.log(app.server.address().port));

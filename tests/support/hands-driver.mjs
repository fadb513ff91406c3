// Runs build/pi-hands outside any sandbox and speaks the hands protocol with it.
import { spawn } from "node:child_process";
import fs from "node:fs";
import net from "node:net";
import path from "node:path";

const TYPES = ("- HELLO PING PONG SET_CLOCK OK ERROR CALL ATTACH CANCEL ACK UPDATE RESULT EXEC STDIN " +
    "STDOUT STDERR SIGNAL RESIZE EXIT").split(" ");

export function frame(type, payload) {
    const bytes = Buffer.isBuffer(payload) ? payload : Buffer.from(JSON.stringify(payload));
    const head = Buffer.alloc(5);
    head.writeUInt32LE(bytes.length + 1);
    head[4] = TYPES.indexOf(type);
    return Buffer.concat([head, bytes]);
}

// pi-hands inherits a listening socket. Node unlinks the path when it lets go of its own copy, so
// the program is reached by a second name of the same socket.
export async function startHands(folder, env = {}, { program = path.resolve("build/pi-hands"), rg = path.resolve("build/runtime/rg") } = {}) {
    const first = path.join(folder, "first.sock");
    const socket = path.join(folder, "hands.sock");
    const server = net.createServer().listen(first);
    await new Promise((resolve) => server.once("listening", resolve));
    fs.linkSync(first, socket);
    const child = spawn(program, ["3", "--rg", rg], {
        cwd: "/", env, stdio: ["ignore", "ignore", "inherit", server._handle.fd],
    });
    await new Promise((resolve) => server.close(resolve));
    return new Hands(child, socket);
}

export class Hands {
    // `child` is ours to stop, or null: a sandbox's pi-hands.
    constructor(child, socket) {
        this.child = child;
        this.socket = socket;
        this.calls = 0;
    }

    // One conversation: every frame of the answer as {type, payload}.
    converse(type, payload) {
        return new Promise((resolve, reject) => {
            const frames = [];
            let bytes = Buffer.alloc(0);
            const connection = net.connect(this.socket, () => connection.write(frame(type, payload)));
            connection.on("error", reject);
            connection.on("data", (data) => {
                bytes = Buffer.concat([bytes, data]);
                while (bytes.length >= 5 && bytes.length >= 4 + bytes.readUInt32LE(0)) {
                    const end = 4 + bytes.readUInt32LE(0);
                    frames.push({ type: TYPES[bytes[4]], payload: bytes.subarray(5, end) });
                    bytes = bytes.subarray(end);
                }
            });
            connection.on("close", () => resolve(frames));
        });
    }

    async call(tool, input, cwd) {
        this.calls += 1;
        const key = `call_${this.calls}`;
        const frames = await this.converse("CALL", { key, tool, input, cwd });
        await this.converse("ACK", { key });
        const last = frames.at(-1);
        if (last?.type !== "RESULT") throw new Error(`no result: ${last?.type} ${last?.payload}`);
        return JSON.parse(last.payload.toString());
    }

    // A plain process: {code, out}, standard output and error together.
    async exec(argv, more = {}) {
        const frames = await this.converse("EXEC", { argv, ...more });
        const out = frames.filter((f) => f.type === "STDOUT" || f.type === "STDERR").map((f) => f.payload);
        const last = frames.at(-1);
        if (last?.type !== "EXIT") throw new Error(`no exit: ${last?.type} ${last?.payload}`);
        return { code: JSON.parse(last.payload).code, out: Buffer.concat(out).toString() };
    }

    async stop() {
        const gone = new Promise((resolve) => this.child.once("exit", resolve));
        this.child.kill();
        await gone;
    }
}

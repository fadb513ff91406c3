// Run by tests/e2e/confine.test.mjs in place of host.mjs, with the same flags, and once with no walls around
// it. Attempts what an attacker in the host would and reports each: {name, ok, detail}, one a line, on
// descriptor 3. Targets come in as the first line there.
import { spawnSync } from "node:child_process";
import dgram from "node:dgram";
import fs from "node:fs";
import net from "node:net";
import process from "node:process";

const stream = new net.Socket({ fd: 3 });
const targets = await new Promise((resolve) => {
    let text = "";
    stream.on("data", (chunk) => {
        text += chunk;
        if (text.endsWith("\n")) {
            resolve(JSON.parse(text));
        }
    });
});

function connect(options) {
    return new Promise((resolve, reject) => {
        const socket = net.connect(options, () => {
            socket.destroy();
            resolve("connected");
        });
        socket.on("error", reject);
    });
}

function sendDatagram(port) {
    return new Promise((resolve, reject) => {
        const socket = dgram.createSocket("udp4");
        socket.on("error", reject);
        socket.send("x", port, "127.0.0.1", (error) => {
            socket.close();
            return error ? reject(error) : resolve("sent");
        });
    });
}

const ATTEMPTS = {
    write: () => fs.writeFileSync(targets.file, "written"),
    exec: () => {
        const { error, stdout } = spawnSync("/bin/sh", ["-c", "echo ran"]);
        if (error) {
            throw error;
        }
        return stdout.toString();
    },
    tcp: () => connect({ host: "127.0.0.1", port: targets.tcp }),
    udp: () => sendDatagram(targets.udp),
    "abstract socket": () => connect({ path: `\0${targets.abstract}` }),
    "foreign socket": () => connect({ path: targets.socket }),
    "/etc/passwd": () => fs.readFileSync("/etc/passwd", "utf8").length,
    "/proc of another": () => fs.readFileSync(`/proc/${targets.sibling}/environ`, "utf8").length,
    "a listening socket": () => new Promise((resolve, reject) => {
        const server = net.createServer().on("error", reject);
        server.listen(`\0attack-${process.pid}-${targets.tcp}`, () => server.close(resolve));
    }),
    kill: () => process.kill(targets.sibling, "SIGTERM"), // after the others: they need it alive
    "its own gateway": () => connect({ path: process.argv[3] }),
};

for (const [name, attempt] of Object.entries(ATTEMPTS)) {
    let result;
    try {
        result = { name, ok: true, detail: String(await attempt()) };
    } catch (error) {
        result = { name, ok: false, detail: error.code ?? error.message };
    }
    stream.write(`${JSON.stringify(result)}\n`);
}
stream.end();

// A little internet for guard-dns.test.mjs, in a network and mount namespace of its own: public and
// private addresses on the loopback device, a name server that says what a test wants, and web servers
// that redirect. Run by: unshare -nm [-r] node guard-world.mjs PROGRAM
// A line on stdin is a case: {args: [of `pi-managed guard`], dns: {name: [[addresses of the 1st
// question], [of the 2nd], …]}, pages: {"host/path": location or text}}; a line on stdout is what came
// of it: {status, output (JSON), asked: [names], seen: ["address host/path"]}.
import { execFileSync, spawn } from "node:child_process";
import dgram from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { createInterface } from "node:readline";
import { text as allText } from "node:stream/consumers";

const [program] = process.argv.slice(2);
const ADDRESSES = ["93.184.215.14", "140.82.112.5", "10.1.2.3", "169.254.169.254", "127.0.0.1"];
const A = 1;

let world = { dns: {}, pages: {} };
let asked = [];
let seen = [];

function setUp() {
    const busybox = (...args) => execFileSync("busybox", args, { stdio: "inherit" });
    busybox("ip", "link", "set", "lo", "up");
    for (const address of ADDRESSES.filter((a) => a !== "127.0.0.1")) {
        busybox("ip", "addr", "add", `${address}/32`, "dev", "lo");
    }
    const folder = "/mnt";
    const files = {
        "/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n",
        "/etc/nsswitch.conf": "hosts: files dns\n",
        "/etc/hosts": "127.0.0.1 localhost\n",
    };
    execFileSync("mount", ["--make-rprivate", "/"]);
    execFileSync("mount", ["-t", "tmpfs", "none", folder]);
    for (const [file, text] of Object.entries(files)) {
        const mine = path.join(folder, path.basename(file));
        writeFileSync(mine, text);
        execFileSync("mount", ["--bind", mine, file]);
    }
}

/** The name in a question that starts at byte 12, and where the question ends. */
function questionOf(packet) {
    const labels = [];
    let at = 12;
    while (packet[at] > 0) {
        labels.push(packet.toString("latin1", at + 1, at + 1 + packet[at]));
        at += packet[at] + 1;
    }
    return { name: labels.join(".").toLowerCase(), type: packet.readUInt16BE(at + 1), end: at + 5 };
}

function addressRecord(address) {
    const record = Buffer.alloc(16);
    record.writeUInt16BE(0xc00c, 0); // the question's name
    record.writeUInt16BE(A, 2);
    record.writeUInt16BE(1, 4);
    record.writeUInt16BE(4, 10); // time to live 0 before it
    address.split(".").forEach((part, i) => (record[12 + i] = Number(part)));
    return record;
}

function answerTo(packet) {
    const { name, type, end } = questionOf(packet);
    const turns = world.dns[name];
    const nth = asked.filter((question) => question === name).length;
    const addresses = turns && type === A ? turns[Math.min(nth, turns.length - 1)] : [];
    if (type === A) {
        asked.push(name);
    }
    const head = Buffer.alloc(12);
    packet.copy(head, 0, 0, 2);
    head.writeUInt16BE(turns ? 0x8180 : 0x8183, 2);
    head.writeUInt16BE(1, 4);
    head.writeUInt16BE(addresses.length, 6);
    return Buffer.concat([head, packet.subarray(12, end), ...addresses.map(addressRecord)]);
}

async function startServers() {
    const dns = dgram.createSocket("udp4");
    dns.on("message", (packet, from) => {
        if (world.dns[questionOf(packet).name] !== "silent") {
            dns.send(answerTo(packet), from.port, from.address);
        }
    });
    dns.bind(53, "127.0.0.1");
    await once(dns, "listening");
    for (const address of ADDRESSES) {
        const server = http.createServer((request, response) => {
            const page = `${request.headers.host}${request.url}`;
            seen.push(`${address} ${page}`);
            const answer = world.pages[page] ?? "nothing here";
            const leads = /^(\w+:|\/)/.test(answer);
            response.writeHead(leads ? 302 : 200, leads ? { location: answer } : {}).end(answer);
        });
        server.listen(80, address);
        await once(server, "listening");
    }
}

async function run({ args, dns = {}, pages = {} }) {
    world = { dns, pages };
    [asked, seen] = [[], []];
    const child = spawn(program, ["guard", "--json", ...args], { stdio: ["ignore", "pipe", "inherit"] });
    const output = allText(child.stdout);
    const [status] = await once(child, "exit");
    return { status, output: JSON.parse(await output), asked, seen };
}

setUp();
await startServers();
console.log("ready");
for await (const line of createInterface(process.stdin)) {
    console.log(JSON.stringify(await run(JSON.parse(line))));
}
process.exit(0);

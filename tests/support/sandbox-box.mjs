// A sandbox of the linux provider without a service, driven through sandbox_driver.
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";
import { Hands } from "./hands-driver.mjs";

export const BUILD = path.resolve(process.env.PI_MANAGED_BIN ? path.dirname(process.env.PI_MANAGED_BIN) : "build");
export const PLAIN_UID = 12345;

export class Box {
    // `uid`: who makes it. Limits are in MiB and processes; no disk: no limit.
    constructor({ uid = process.getuid(), memory = 256, pids = 128, disk = 0 } = {}) {
        this.data = fs.mkdtempSync(path.join(os.tmpdir(), "pm-box-"));
        this.id = `sess_box_${path.basename(this.data).slice(7)}`;
        fs.mkdirSync(path.join(this.data, "runtime"));
        fs.copyFileSync("build/runtime/rg", path.join(this.data, "runtime/rg"));
        if (uid !== process.getuid()) fs.chownSync(this.data, uid, uid);
        this.driver = spawn(path.join(BUILD, "tests/support/sandbox_driver"),
            [this.data, this.id, `${memory}`, `${pids}`, `${disk}`],
            { cwd: "/", uid, gid: uid === 0 ? process.getgid() : uid, stdio: ["pipe", "pipe", "inherit"] });
        this.answers = readline.createInterface({ input: this.driver.stdout })[Symbol.asyncIterator]();
    }

    async verb(name) {
        this.driver.stdin.write(`${name}\n`);
        const { value = "failed: the driver is gone" } = await this.answers.next();
        if (!value.startsWith("ok ")) throw new Error(`${name}: ${value}`);
        return value.slice(3);
    }

    async start() {
        this.hands = new Hands(null, await this.verb("start"));
    }

    bash(command) {
        return this.hands.exec(["bash", "-c", command], { cwd: "/workspace" });
    }

    async end() {
        const gone = once(this.driver, "exit");
        this.driver.stdin.end();
        await gone;
        fs.rmSync(this.data, { recursive: true, force: true });
    }
}

// The command line as a person or a script uses it.
//
//   const { code, stdout, stderr } = await run(["agent", "list"], { env: envOf(service) });
//   const tail = startCli(["session", "tail", id], { env });   tail.child, tail.stdout, tail.stderr
//   await tail.says(/pattern/);  await tail.ended;              in stdout and stderr together
import { execFile, spawn } from "node:child_process";
import { PATIENCE_MS } from "./eventually.mjs";
import { SERVICE_PROGRAM } from "./service.mjs";

function environment(env = {}) {
    const { PATH, ASAN_OPTIONS = "", TSAN_OPTIONS = "" } = process.env;
    return { PATH, ASAN_OPTIONS, TSAN_OPTIONS, ...env };
}

/** What a command needs to find a service. */
export const envOf = (service) => ({ PI_MANAGED_URL: service.url, PI_MANAGED_API_KEY: service.apiKey });

/** → {code, stdout, stderr}; never throws. */
export function run(args, { env, cwd, program = SERVICE_PROGRAM, input } = {}) {
    return new Promise((resolve) => {
        const child = execFile(program, args, { env: environment(env), cwd, timeout: PATIENCE_MS },
            (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr }));
        child.stdin.on("error", () => {}); // it may end without reading
        child.stdin.end(input);
    });
}

/** A command that goes on while the test does something. On a terminal if `terminal` is set. */
export function startCli(args, { env, terminal = false } = {}) {
    const words = terminal
        ? ["script", "-qec", [SERVICE_PROGRAM, ...args].map((word) => `'${word}'`).join(" "), "/dev/null"]
        : [SERVICE_PROGRAM, ...args];
    return new RunningCli(spawn(words[0], words.slice(1), { env: environment(env) }));
}

class RunningCli {
    stdout = "";
    stderr = "";
    #watchers = new Set();

    constructor(child) {
        this.child = child;
        for (const name of ["stdout", "stderr"]) {
            child[name].setEncoding("utf8").on("data", (text) => {
                this[name] += text;
                this.#watchers.forEach((watch) => watch());
            });
        }
        /** {code, signal} */
        this.ended = new Promise((resolve) => {
            child.once("close", (code, signal) => {
                this.exit = { code, signal };
                this.#watchers.forEach((watch) => watch());
                resolve(this.exit);
            });
        });
    }

    /** Waits until the output so far matches. */
    says(pattern) {
        return new Promise((resolve, reject) => {
            const said = () => `${pattern}; stdout:\n${this.stdout}\nstderr:\n${this.stderr}`;
            const end = (settle, value) => {
                clearTimeout(timer);
                this.#watchers.delete(watch);
                settle(value);
            };
            const watch = () => {
                const found = pattern.exec(this.stdout) ?? pattern.exec(this.stderr);
                if (found) {
                    end(resolve, found);
                } else if (this.exit) {
                    end(reject, new Error(`ended with ${JSON.stringify(this.exit)} before ${said()}`));
                }
            };
            const timer = setTimeout(() => end(reject, new Error(`did not say ${said()}`)), PATIENCE_MS);
            this.#watchers.add(watch);
            watch();
        });
    }
}

// What the programs share that make files from contracts/openapi.yaml.
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { parseYaml } from "./yaml.mjs";

const ROOT = new URL("../", import.meta.url);

/** When `program` is the one that was started: writes `path`, or with --check compares it. */
export function writeOrCheck(program, path, make) {
    if (!process.argv[1] || program !== pathToFileURL(process.argv[1]).href) {
        return;
    }
    const text = make(parseYaml(readFileSync(new URL("contracts/openapi.yaml", ROOT), "utf8")));
    const file = new URL(path, ROOT);
    if (!process.argv.includes("--check")) {
        writeFileSync(file, text);
    } else if (readFileSync(file, "utf8") !== text) {
        console.error(`${path} is not what the contract says. Run: node ${process.argv[1]}`);
        process.exitCode = 1;
    }
}

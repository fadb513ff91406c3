// Looking at the processes of a service from outside, by /proc.
import { readFileSync, readdirSync } from "node:fs";

/** All processes: [{pid, parent, command}]. */
export function processes() {
    return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).flatMap((name) => {
        try {
            const stat = readFileSync(`/proc/${name}/stat`, "latin1");
            const parent = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
            const command = readFileSync(`/proc/${name}/cmdline`, "latin1").replaceAll("\0", " ");
            return [{ pid: Number(name), parent, command }];
        } catch {
            return []; // it ended meanwhile
        }
    });
}

/** The processes whose parents lead up to pid: [{pid, parent, command}]. */
export function descendants(pid) {
    const all = processes();
    const family = new Set([pid]);
    for (const member of family) { // a Set iterates over what is added meanwhile, too
        all.filter((one) => one.parent === member).forEach((one) => family.add(one.pid));
    }
    return all.filter((one) => one.pid !== pid && family.has(one.pid));
}

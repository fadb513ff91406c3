// What a local Pi finds in its working directory (R44), from what rg said of it inside the sandbox
// (src/session/workdir.c): the same files by the same rules, without a file system.
import { Buffer } from "node:buffer";
import path from "node:path/posix";

const CONTEXT_FILES = ["AGENTS.override.md", "AGENTS.md", "AGENTS.MD", "CLAUDE.md", "CLAUDE.MD"];

/** {agentsFiles, skills} as Pi's resource loader gives them; `lines` are rg's JSON records. */
export function workdirResources(pi, lines, cwd) {
    const files = filesOf(lines);
    return { agentsFiles: contextFiles(files, cwd), skills: skillsOf(pi, files, cwd) };
}

/** path → content. */
function filesOf(lines) {
    const parts = new Map();
    for (const line of lines) {
        const { type, data } = JSON.parse(line.toString("utf8"));
        if (type === "match") {
            const name = bytesOf(data.path).toString("utf8");
            parts.set(name, [...parts.get(name) ?? [], bytesOf(data.lines)]);
        }
    }
    return new Map([...parts].map(([name, all]) => [name, Buffer.concat(all).toString("utf8").replace(/^\ufeff/, "")]));
}

const bytesOf = ({ text, bytes }) => text === undefined ? Buffer.from(bytes, "base64") : Buffer.from(text);

/** In each folder from the root to the working directory the first that is there. */
function contextFiles(files, cwd) {
    const folders = [];
    for (let folder = cwd; ; folder = path.dirname(folder)) {
        folders.unshift(folder);
        if (folder === path.dirname(folder)) {
            break;
        }
    }
    return folders.flatMap((folder) => {
        const found = CONTEXT_FILES.map((name) => path.join(folder, name)).find((name) => files.has(name));
        return found ? [{ path: found, content: files.get(found) }] : [];
    });
}

/** Skills of a folder: SKILL.md stands for all beneath it; other .md files count at the top (pi) or below it. */
function skillPaths(files, root, mode) {
    const inside = [...files.keys()].filter((name) => name.startsWith(`${root}/`))
        .filter((name) => !name.slice(root.length + 1).split("/").some((part) =>
            part.startsWith(".") || part === "node_modules"));
    const owners = inside.filter((name) => path.basename(name) === "SKILL.md").map((name) => path.dirname(name));
    return inside.filter((name) => {
        const folder = path.dirname(name);
        const owner = owners.filter((one) => folder === one || folder.startsWith(`${one}/`))
            .sort((a, b) => a.length - b.length)[0];
        if (owner !== undefined) {
            return name === path.join(owner, "SKILL.md");
        }
        return mode === "pi" ? folder === root : folder !== root;
    });
}

function skillsOf(pi, files, cwd) {
    const skills = new Map();
    for (const [folder, mode] of [[".pi", "pi"], [".agents", "agents"]]) {
        for (const name of skillPaths(files, path.join(cwd, folder, "skills"), mode)) {
            const skill = skillOf(pi, name, files.get(name));
            if (skill && !skills.has(skill.name)) {
                skills.set(skill.name, skill);
            }
        }
    }
    return [...skills.values()];
}

function skillOf(pi, filePath, content) {
    let frontmatter;
    try {
        ({ frontmatter } = pi.parseFrontmatter(content));
    } catch {
        return undefined; // as Pi does, with a warning that nobody would see
    }
    const { name, description } = frontmatter;
    if (typeof description !== "string" || description.trim() === "") {
        return undefined;
    }
    const baseDir = path.dirname(filePath);
    return {
        name: (typeof name === "string" && name) || path.basename(baseDir),
        description, filePath, baseDir,
        sourceInfo: pi.createSyntheticSourceInfo(filePath, { source: "project", scope: "project" }),
        disableModelInvocation: frontmatter["disable-model-invocation"] === true,
    };
}

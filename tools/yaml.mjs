// Reads the part of YAML that contracts/openapi.yaml is written in: block maps and lists, flow maps and
// lists on one line, plain and double-quoted scalars, comments on lines of their own. Anything else is an
// error with its line, never a guess.

export function parseYaml(text) {
    const lines = text.split("\n")
        .map((line, index) => ({ indent: line.search(/\S/), text: line.trim(), number: index + 1 }))
        .filter((line) => line.text !== "" && !line.text.startsWith("#"));
    const reader = { lines, at: 0 };
    const value = readBlock(reader, 0);
    if (reader.at < lines.length) {
        throw error(lines[reader.at], "wrong indentation");
    }
    return value;
}

function error(line, what) {
    return new Error(`line ${line.number}: ${what}: ${line.text}`);
}

function readBlock(reader, indent) {
    const line = reader.lines[reader.at];
    if (line.indent !== indent) {
        throw error(line, `expected an indentation of ${indent}`);
    }
    return line.text.startsWith("- ") ? readList(reader, indent) : readMap(reader, indent);
}

function readList(reader, indent) {
    const list = [];
    for (let line; (line = reader.lines[reader.at])?.indent === indent && line.text.startsWith("- ");) {
        // "- key: value" is a map whose first line stands behind the dash.
        line.text = line.text.slice(2).trimStart();
        line.indent = indent + 2;
        list.push(splitKey(line) ? readMap(reader, indent + 2) : readFlowLine(reader));
    }
    return list;
}

function readMap(reader, indent) {
    const map = {};
    for (let line; (line = reader.lines[reader.at])?.indent === indent;) {
        const pair = splitKey(line);
        if (!pair) {
            throw error(line, "expected key: value");
        }
        if (Object.hasOwn(map, pair.key)) {
            throw error(line, `the key ${pair.key} came before`);
        }
        map[pair.key] = readValue(reader, line, pair.rest, indent);
    }
    return map;
}

function readValue(reader, line, rest, indent) {
    if (rest !== "") {
        line.text = rest;
        return readFlowLine(reader);
    }
    reader.at++;
    if (!(reader.lines[reader.at]?.indent > indent)) {
        throw error(line, "nothing belongs to this key");
    }
    return readBlock(reader, indent + 2);
}

/** {key, rest} of "key: rest" and "\"key\": rest"; null when the line is no such pair. */
function splitKey({ text }) {
    const match = /^(?:"((?:[^"\\]|\\.)*)"|([^\s"{}[\]].*?)):(?: +(.*))?$/.exec(text);
    return match && { key: match[1] ?? match[2], rest: match[3] ?? "" };
}

function readFlowLine(reader) {
    const line = reader.lines[reader.at++];
    const flow = { line, text: line.text, at: 0 };
    const value = /^[[{"]/.test(line.text) ? readFlow(flow) : scalar(line.text);
    if (flow.at > 0 && flow.at < flow.text.length) {
        throw error(line, `something follows at ${flow.at}`);
    }
    return value;
}

function skip(flow, pattern) {
    pattern.lastIndex = flow.at;
    const match = pattern.exec(flow.text);
    if (!match) {
        throw error(flow.line, `expected ${pattern} at ${flow.at}`);
    }
    flow.at = pattern.lastIndex;
    return match[0];
}

function readFlow(flow) {
    const open = flow.text[flow.at];
    if (open === "{") {
        return readItems(flow, "}", {}, (map) => {
            const key = scalar(skip(flow, /"(?:[^"\\]|\\.)*"|[^:,{}[\]]+/y));
            skip(flow, /: */y);
            map[key] = readFlow(flow);
        });
    }
    if (open === "[") {
        return readItems(flow, "]", [], (list) => list.push(readFlow(flow)));
    }
    return scalar(skip(flow, /"(?:[^"\\]|\\.)*"|[^,{}[\]]+/y).trim());
}

function readItems(flow, close, into, readOne) {
    flow.at++;
    skip(flow, / */y);
    while (flow.text[flow.at] !== close) {
        readOne(into);
        skip(flow, new RegExp(` *(?:, *|(?=\\${close}))`, "y"));
    }
    flow.at++;
    return into;
}

function scalar(text) {
    if (text.startsWith('"')) {
        return JSON.parse(text);
    }
    if (/^[|>&*!%@`']/.test(text)) {
        throw new Error(`this part of YAML is not read: ${text}`);
    }
    if (/^(?:null|true|false|-?\d+(?:\.\d+)?)$/.test(text)) {
        return JSON.parse(text);
    }
    return text;
}

// A second opinion for the dial guard, made from other parts: Node's WHATWG URL parser and plain arithmetic over
// tests/vectors/ssrf_ranges.json. And URLs to ask both about: odd spellings of addresses and names, in any position.
import { readFileSync } from "node:fs";

const RANGES = JSON.parse(readFileSync(new URL("../vectors/ssrf_ranges.json", import.meta.url), "utf8"));

const number4 = (text) => text.split(".").reduce((n, part) => n * 256n + BigInt(part), 0n);

function number6(text) {
    const [before, after] = withoutDots(text).split("::");
    const left = before ? before.split(":") : [];
    const right = after ? after.split(":") : [];
    const middle = after === undefined ? [] : Array(8 - left.length - right.length).fill("0");
    return [...left, ...middle, ...right].reduce((n, part) => n * 65536n + BigInt(`0x${part}`), 0n);
}

/** ::ffff:1.2.3.4 → ::ffff:102:304 */
function withoutDots(text) {
    const at = text.lastIndexOf(":") + 1;
    if (!text.includes(".")) {
        return text;
    }
    const n = number4(text.slice(at));
    return `${text.slice(0, at)}${(n >> 16n).toString(16)}:${(n & 65535n).toString(16)}`;
}

function within(n, bits, cidr) {
    const [prefix, length] = cidr.split("/");
    const rest = BigInt(bits - Number(length));
    return n >> rest === (bits === 32 ? number4(prefix) : number6(prefix)) >> rest;
}

const denied4 = (n) => RANGES.ipv4_deny.some(([cidr]) => within(n, 32, cidr));

function denied6(n) {
    if (RANGES.ipv6_unwrap.some(([cidr]) => within(n, 128, cidr))) {
        return denied4(n & 0xffffffffn);
    }
    return !within(n, 128, "2000::/3") || RANGES.ipv6_deny_inside_2000_3.some(([cidr]) => within(n, 128, cidr));
}

const deniedAddress = (text) => text.includes(":") ? denied6(number6(text)) : denied4(number4(text));
const deniedName = (host) => RANGES.names_deny.includes(host) || RANGES.suffixes_deny.some((end) => host.endsWith(end));

/** "allow" or "deny" */
export function secondOpinion({ url, dns, policy }) {
    let parsed;
    try {
        parsed = new URL(url);
    } catch {
        return "deny";
    }
    const { protocol, port, username, password } = parsed;
    const host = parsed.hostname.replace(/\.$/, "");
    const literal = /^\[.*\]$|^\d+\.\d+\.\d+\.\d+$/.test(host);
    if (!/^https?:$/.test(protocol) || username || password
        || (policy === "webhook" && (protocol !== "https:" || port !== "" || literal))) {
        return "deny";
    }
    const answers = literal ? [host.replace(/[[\]]/g, "")] : dns[host] ?? [];
    const denied = (!literal && deniedName(host)) || answers.length === 0 || answers.some(deniedAddress);
    return denied ? "deny" : "allow";
}

/** count cases of tests/vectors/ssrf_public.json's shape, the same for the same seed. */
export function makeCases(count, seed) {
    const make = new Maker(seed);
    return Array.from({ length: count }, (_, i) => {
        const case_ = make.case();
        return { id: `made-${seed}-${i}`, ...case_, verdict: secondOpinion(case_) };
    });
}

const NAMES = ["example.com", "EXAMPLE.com", "bücher.example", "xn--bcher-kva.example", "a.b.c.example.org", "localhost",
    "foo.localhost", "x.internal", "metadata.google.internal", "printer.local", "under_score.example.com", "sub.corp",
    "kubernetes.default.svc", "日本語.example", "faß.example", "ｅxample.com", "example.com.", "a-b.example.com",
    "1e100.example.com", "0x7f.example.com", "example.c0m"];
const ADDRESSES = ["127.0.0.1", "10.0.0.1", "169.254.169.254", "8.8.8.8", "93.184.215.14", "192.168.1.1", "100.64.0.1",
    "168.63.129.16", "1.1.1.1", "172.16.5.4", "0.0.0.0", "224.0.0.1"];
const ADDRESSES6 = ["::1", "::", "fe80::1", "fc00::1", "2606:4700:4700::1111", "2001:db8::1", "2002:7f00:1::", "2001:0:1::1",
    "64:ff9b::8.8.8.8", "64:ff9b::10.0.0.1", "3fff::1", "2a00:1450::1", "64:ff9b:1::1"];

class Maker {
    #state;

    constructor(seed) {
        this.#state = seed;
    }

    #below(n) {
        this.#state = (this.#state * 1103515245 + 12345) & 0x7fffffff;
        return this.#state % n;
    }

    #pick(list) {
        return list[this.#below(list.length)];
    }

    #address4() {
        return this.#pick([...ADDRESSES, [0, 0, 0, 0].map(() => this.#below(256)).join(".")]);
    }

    #address6() {
        return this.#pick([...ADDRESSES6, `::ffff:${this.#address4()}`, `::${this.#address4()}`]);
    }

    #spelled4() {
        const address = this.#address4();
        const parts = address.split(".").map(Number);
        const each = (write) => parts.map(write).join(".");
        return this.#pick([
            address, String(number4(address)), `0x${number4(address).toString(16)}`, each((part) => `0${part.toString(8)}`),
            each((part) => `0x${part.toString(16)}`), each((part) => String(part).padStart(3, "0")),
            `${parts[0]}.${parts[1]}.${parts[2] * 256 + parts[3]}`, `${address}.`, parts.join("。"),
            address.replace(/\d/g, (digit) => String.fromCharCode(0xff10 + Number(digit))),
        ]);
    }

    #host() {
        const kind = this.#below(4);
        return kind < 2 ? this.#pick(NAMES) : kind === 2 ? this.#spelled4() : `[${this.#address6()}]`;
    }

    case() {
        const host = this.#host();
        const good = "93.184.215.14";
        const answers = this.#pick([[this.#address4()], [good], [good, this.#address4()], [this.#address6()],
            [good, "2606:4700:4700::1111"], []]);
        const url = this.#pick(["http://", "https://", "HTTP://"]) + this.#pick(["", "", "", "", "u@", "u:p@"]) + host
            + this.#pick(["", "", ":80", ":443", ":8080", ":0", ":65536"])
            + this.#pick(["/", "", "/x?y=1#z", "?@evil", "#@evil", "/@x", "/%2e%2e/", "\\@8.8.8.8/", "/é"]);
        return { url, dns: { [nameOf(host)]: answers }, policy: this.#pick(["fetch", "fetch", "webhook"]) };
    }
}

function nameOf(host) {
    try {
        return new URL(`http://${host}`).hostname.replace(/\.$/, "");
    } catch {
        return host;
    }
}

// The key's tenant: with and without a limit.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { SERVICE_PROGRAM } from "../../support/service.mjs";

export default async function tour({ service, other }) {
    await service.ok("GET", "/v1/tenant");
    await promisify(execFile)(SERVICE_PROGRAM, ["tenant", "set", other.tenantId, "--limits",
        "concurrentSessions=100,dailyUsd=2.5", "--data", service.data]);
    await service.ok("GET", "/v1/tenant", undefined, { key: other.apiKey });
}

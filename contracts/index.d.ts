// Written by tools/contract-types.mjs from contracts/openapi.yaml: change that.

export type AgentId = string;

export type EnvironmentId = string;

export type SessionId = string;

export type VaultId = string;

export type CredentialId = string;

export type EventId = string;

export type ApiKeyId = string;

export type FileId = string;

export type VolumeId = string;

/** Lower-case letters, digits, - _ and ., the first a letter or digit */
export type VolumeName = string;

export type VolumeCreate = {
    name: VolumeName;
};

export type Volume = {
    id: VolumeId;
    type: "volume";
    name: VolumeName;
    /** On disk, when it was last measured: each minute while a sandbox that has it runs. Counts against fileStorageBytes */
    sizeBytes: number;
    measuredAt: NullableTime;
    /** That have started with it and are not deleted */
    sessions: number;
    createdAt: Time;
    lastUsedAt: NullableTime;
};

/** Of a session's outputs, those that are no files yet; on the first page of a list with sessionId */
export type OutputsRest = {
    /** Are copied when the list is asked for again */
    waiting: number;
    /** At least so many never become files: beyond the first 10,000, with names that are no UTF-8, in folders that cannot be read */
    leftOut: number;
};

export type File = {
    id: FileId;
    type: "file";
    name: string;
    mimeType: string;
    sizeBytes: number;
    sha256: string;
    metadata: Metadata;
    /** Of an output: the session it is from */
    sessionId: string | null;
    /** Of an output: where it lies below /mnt/session/outputs */
    path: string | null;
    createdAt: Time;
};

export type TenantId = string;

export type Quota = {
    /** null: unlimited */
    limit: number | null;
    /** dailyUsd: since 00:00 UTC */
    used: number | null;
};

export type Tenant = {
    id: TenantId;
    type: "tenant";
    name: string;
    createdAt: Time;
    /** The name of its plan */
    quotaPlan: string;
    /** What the plan includes */
    features: Record<string, unknown>;
    quotas: {
        concurrentSessions: Quota;
        concurrentSandboxes: Quota;
        jobs: Quota;
        vaultCredentials: Quota;
        memoryStores: Quota;
        fileStorageBytes: Quota;
        monthlyTokens: Quota;
        requestsPerMinute: Quota;
        dailyUsd: Quota;
    };
};

export type Problem = {
    type: string;
    title: string;
    status: number;
    /** For people */
    detail: string;
    /** For programs: stable */
    code: string;
    requestId: string;
    errors?: {
        /** A JSON pointer into the body */
        path: string;
        message: string;
    }[];
};

/** A part of a list: data, and how to get the rest */
export type Page<T = unknown> = { data: T[] } & {
    nextCursor: string | null;
    hasMore: boolean;
};

export type Time = string;

export type NullableTime = Time | null;

/** At most 16 pairs of strings; key 1 to 64, value up to 512 characters */
export type Metadata = Record<string, string>;

/** Unique within the tenant; no control characters */
export type Name = string;

export type Model = {
    provider: string;
    id: string;
    thinkingLevel?: "off" | "minimal" | "low" | "medium" | "high" | "xhigh" | "max" | null;
    /** With baseUrl: another server than the catalogue's */
    api?: "anthropic-messages" | "openai-completions" | "openai-responses" | "google-generative-ai" | null;
    baseUrl?: string | null;
    /** Only with api and baseUrl */
    contextWindow?: number | null;
    /** Only with api and baseUrl */
    maxTokens?: number | null;
    /** Only with api and baseUrl */
    input?: ("text" | "image")[] | null;
    /** USD per million tokens */
    cost?: {
        input: number;
        output: number;
        cacheRead?: number;
        cacheWrite?: number;
    } | null;
};

export type ToolConfig = {
    enabled?: boolean;
    permissionPolicy?: "always_allow" | "always_deny";
};

export type NamedToolConfig = {
    name: "bash" | "read" | "write" | "edit" | "grep" | "find" | "ls";
    enabled?: boolean;
    permissionPolicy?: "always_allow" | "always_deny";
};

/** All seven tools are on by default; defaultConfig is the base, configs override it by name */
export type Tools = {
    defaultConfig?: ToolConfig;
    configs?: NamedToolConfig[];
    mcp?: McpToolset[];
};

/** The tools of one of the agent's mcpServers; each server needs exactly one of these */
export type McpToolset = {
    /** Its name in mcpServers */
    server: string;
    defaultConfig?: ToolConfig;
    configs?: McpToolConfig[];
};

export type McpToolConfig = {
    name: string;
    enabled?: boolean;
    permissionPolicy?: "always_allow" | "always_deny";
};

/** A remote MCP server. This version stores and checks the declaration; sessions with one are refused. */
export type McpServer = {
    type: "url";
    name: string;
    url: string;
};

export type McpServers = McpServer[] | null;

/** This version stores and checks the reference; sessions with one are refused. */
export type Skill = {
    type: "prebuilt" | "custom";
    /** pptx, xlsx, docx or pdf; or the id of a custom skill */
    skillId: string;
    /** Of a custom skill; without it the newest */
    version?: number | null;
};

export type Skills = Skill[] | null;

/** The agents a coordinator may call, pinned to the versions they have when this is stored. This version stores and checks the roster; sessions with one are refused. */
export type Multiagent = {
    agents: (RosterAgent | RosterSelf)[];
};

export type RosterAgent = {
    type: "agent";
    id: AgentId;
    version?: number | null;
};

/** Copies of the coordinator itself */
export type RosterSelf = {
    type: "self";
};

export type NullableMultiagent = Multiagent | null;

export type NullableTools = Tools | null;

/** Up to 100 KB; null means Pi's own prompt */
export type SystemPrompt = string | null;

/** Names of managed features; this version has none */
export type Extensions = string[] | null;

/** Whether context files (AGENTS.md and the like) and skills (.pi/skills, .agents/skills) of the sandbox's working directory are loaded when the session wakes, as a local Pi would; true when null or left out */
export type ProjectContext = boolean | null;

export type AgentCreate = {
    name: Name;
    model: Model;
    systemPrompt?: SystemPrompt;
    tools?: NullableTools;
    extensions?: Extensions;
    skills?: Skills;
    mcpServers?: McpServers;
    multiagent?: NullableMultiagent;
    projectContext?: ProjectContext;
    metadata?: Metadata;
};

export type AgentUpdate = {
    /** The version that the change is meant for */
    version?: number;
    name?: Name;
    model?: Model;
    systemPrompt?: SystemPrompt;
    tools?: NullableTools;
    extensions?: Extensions;
    skills?: Skills;
    mcpServers?: McpServers;
    multiagent?: NullableMultiagent;
    projectContext?: ProjectContext;
    metadata?: Metadata;
};

export type Agent = {
    id: AgentId;
    type: "agent";
    version: number;
    name: Name;
    model: Model;
    systemPrompt: SystemPrompt;
    tools: NullableTools;
    extensions: string[];
    skills: Skill[];
    mcpServers: McpServer[];
    multiagent: NullableMultiagent;
    projectContext: ProjectContext;
    metadata: Metadata;
    createdAt: Time;
    updatedAt: Time;
    archivedAt: NullableTime;
};

/** Limits of the sandbox. One that the provider cannot enforce on this host is refused, unless the service was started with --allow-unenforced-limits. */
export type Resources = {
    cpus?: number;
    memoryMiB?: number;
    pids?: number;
    diskMiB?: number;
} | null;

/** Installed into a derived image when a session first needs it; sessions that wish for the same from the same image share it. Needs an `image` other than host. A failure is the session's error. */
export type Packages = {
    apt?: PackageNames;
    npm?: PackageNames;
    pip?: PackageNames;
} | null;

/** Names with at most a version: jq=1.6-2.1 (apt), typescript@5.4.2 (npm), requests==2.32.3 (pip) */
export type PackageNames = string[] | null;

/** Folders mounted into the sandbox at each start, nosuid and nodev. No name, source or target twice; no target within another. They are not copied by forks and snapshots, and not told by changes, pulls and outputs */
export type Mounts = Mount[] | null;

/** A volume, or a folder of the service's machine that its operator allows (serve --allow-mount) */
export type Mount = VolumeMount | BindMount;

export type VolumeMount = {
    type: "volume";
    name: VolumeName;
    target: MountTarget;
    /** Default: false */
    readOnly?: boolean;
};

export type BindMount = {
    type: "bind";
    /** Absolute path of a folder, without . and .. parts */
    source: string;
    target: MountTarget;
    /** Default: true. false needs a folder that does not belong to the machine's root */
    readOnly?: boolean;
};

/** Absolute path in the sandbox, without . and .. parts. Not a system folder, /tmp, /mnt/session, /mnt/memory or what lies within; not /workspace, /root or a parent of theirs: mount within them */
export type MountTarget = string;

/** This version gives sandboxes no network */
export type Networking = {
    type: "none";
};

export type NullableNetworking = Networking | null;

export type Seconds = number | null;

/** host: the service's own /usr, read-only; NAME[:TAG] of the image store (pi-managed image list); or a dir:, tar: or oci: path beneath one that the operator allowed */
export type Image = string;

export type EnvironmentCreate = {
    name: Name;
    type?: "cloud";
    image?: Image;
    resources?: Resources;
    packages?: Packages;
    mounts?: Mounts;
    networking?: NullableNetworking;
    idleTimeout?: Seconds;
    maxDuration?: Seconds;
    metadata?: Metadata;
};

export type EnvironmentUpdate = {
    name?: Name;
    type?: "cloud";
    image?: Image;
    resources?: Resources;
    packages?: Packages;
    mounts?: Mounts;
    networking?: NullableNetworking;
    idleTimeout?: Seconds;
    maxDuration?: Seconds;
    metadata?: Metadata;
};

export type Environment = {
    id: EnvironmentId;
    name: Name;
    type: "cloud";
    image: Image;
    resources: Resources;
    packages: Packages;
    mounts: Mounts;
    networking: Networking;
    /** Seconds without a running turn until the sandbox is stopped; its files stay */
    idleTimeout: number;
    /** Seconds of running time */
    maxDuration: number;
    metadata: Metadata;
    createdAt: Time;
    updatedAt: Time;
    archivedAt: NullableTime;
};

export type SessionStatus = "idle" | "running" | "rescheduling" | "terminated";

/** For this session only. Omitted inherits, null clears, a value replaces whole. */
export type AgentOverrides = {
    model?: Model;
    systemPrompt?: SystemPrompt;
    tools?: NullableTools;
    extensions?: Extensions;
    skills?: Skills;
    mcpServers?: McpServers;
    projectContext?: ProjectContext;
};

export type AgentReference = AgentId | {
    id: AgentId;
    version?: number | null;
    overrides?: AgentOverrides | null;
};

/** A file that is put into the working directory before anything runs there */
export type ResourceCreate = {
    type: "file";
    fileId: FileId;
    /** In /workspace, or relative to it; at most 1024 bytes. Left out: the file's name */
    path?: string | null;
};

export type Resource = {
    type: "file";
    fileId: FileId;
    path: string;
};

export type SessionCreate = {
    agent: AgentReference;
    environmentId: EnvironmentId;
    title?: string | null;
    resources?: ResourceCreate[] | null;
    metadata?: Metadata;
    budget?: Budget | null;
    /** Where the model's key is looked for, in this order, before the default vault */
    vaultIds?: VaultId[] | null;
};

export type SessionUpdate = {
    title?: string | null;
    metadata?: Metadata | null;
    agent?: SessionAgentUpdate;
    budget?: Budget | null;
};

export type VaultCreate = {
    name: string;
};

export type Vault = {
    id: VaultId;
    type: "vault";
    name: string;
    /** Holds the keys of the service's environment; every session uses it last */
    isDefault: boolean;
    createdAt: Time;
    updatedAt: Time;
    archivedAt: NullableTime;
};

export type CredentialCreate = {
    kind: "model_provider_key";
    /** A provider of Pi's catalogue; or else baseUrl */
    provider?: string | null;
    /** The address of a provider of one's own, as in the agent's model */
    baseUrl?: string | null;
    /** Never shown again */
    apiKey: string;
};

export type CredentialUpdate = {
    apiKey: string;
};

export type CredentialValidate = {
    /** What is spoken there, as in the agent's model */
    api?: "openai-completions" | "anthropic-messages" | "openai-responses" | "google-generative-ai";
    /** The agent's, at the key's address */
    baseUrl?: string;
};

export type CredentialValidation = {
    type: "credential_validation";
    credentialId: CredentialId;
    status: "valid" | "invalid" | "unknown";
    /** For people; null if valid */
    reason: string | null;
    validatedAt: Time;
};

export type Credential = {
    id: CredentialId;
    type: "credential";
    vaultId: VaultId;
    kind: "model_provider_key";
    /** What it is for: the provider, or the origin of baseUrl */
    key: string;
    provider: string | null;
    /** Its origin: scheme, host and port */
    baseUrl: string | null;
    createdAt: Time;
    updatedAt: Time;
    archivedAt: NullableTime;
};

/** What a session may use, checked before every model request with an estimate of what that one takes; a request under way may finish. At the limit the turn ends with budget_exhausted. */
export type Budget = {
    /** Tokens of all four kinds, cached ones too */
    maxTokens?: number | null;
    /** More than 0. Needs a model with a known price, or model.cost */
    maxUsd?: number | null;
    /** The share of the budget at which session.budget_warning is sent, once */
    warnAt?: number | null;
};

export type SessionAgentUpdate = {
    tools?: NullableTools;
    mcpServers?: McpServers;
};

export type SessionFork = {
    /** One of Pi's entries in the log; null or left out: the leaf */
    entryId?: string | null;
    files?: "copy" | "none";
    /** Left out: as in the session forked */
    title?: string | null;
    metadata?: Metadata | null;
};

export type ForkedFrom = {
    sessionId: SessionId;
    entryId: string;
    filesFrom: "live" | "stopped" | "none";
};

export type TreeNode = {
    position: number;
    /** null for the header */
    id: string | null;
    parentId: string | null;
    type?: string;
    /** Of a message */
    role?: string;
    customType?: string;
    timestamp?: string;
    /** The beginning of its text, 200 bytes at most */
    text?: string;
    /** The conversation stands here */
    leaf?: true;
};

export type Messages = {
    data: Record<string, unknown>[];
};

/** The agent as this session has it, overrides applied */
export type SessionAgent = {
    id: string;
    version: number;
    name: Name;
    model: Model;
    systemPrompt: SystemPrompt;
    tools: NullableTools;
    extensions: string[];
    skills: Skill[];
    mcpServers: McpServer[];
    multiagent: NullableMultiagent;
    projectContext: ProjectContext;
    metadata: Metadata;
};

/** Of the whole session. The four kinds of tokens are disjoint. */
export type Usage = {
    inputTokens: number;
    outputTokens: number;
    cacheReadInputTokens: number;
    cacheCreationInputTokens: number;
    costUsd: number;
    /** Some of it is an estimate */
    estimated?: true;
};

export type StopReason = {
    type: "end_turn" | "requires_action" | "interrupted" | "budget_exhausted" | "retries_exhausted" | "goal_blocked" | "error";
};

export type NullableStopReason = StopReason | null;

export type Session = {
    id: SessionId;
    type: "session";
    status: SessionStatus;
    stopReason: NullableStopReason;
    title: string | null;
    agent: SessionAgent;
    agentId: AgentId;
    agentVersion: number;
    environmentId: EnvironmentId;
    metadata: Metadata;
    budget: Budget | null;
    vaultIds: string[];
    resources: Resource[];
    usage: Usage;
    sandbox: {
        provider: string;
        ownKernel: boolean;
        limits: "enforced" | "none";
        state: "none" | "running" | "stopped" | "crashed";
    };
    forkedFrom?: ForkedFrom;
    createdAt: Time;
    updatedAt: Time;
    lastActivityAt: Time;
};

export type NullableCount = number | null;

export type Diff = {
    type: "diff";
    sessionId: string;
    /** The folder that was compared */
    path: string;
    changes: Change[];
    summary: {
        added: number;
        changed: number;
        removed: number;
        /** Folders not looked into: more than 128 deep, or unreadable */
        leftOut: number;
    };
    /** There are more changes */
    truncated: boolean;
};

/** What there is now; of something removed, what there was */
export type Change = {
    /** Absolute; bytes that are not UTF-8 are shown as U+FFFD */
    path: string;
    /** The exact bytes, when path is not exact */
    pathBase64?: string;
    change: "added" | "changed" | "removed";
    type: ChangeType;
    /** Octal */
    mode: string;
    /** Of a file, in bytes */
    size?: number;
    /** Of a link */
    target?: string;
    targetBase64?: string;
    modifiedAt: string | null;
    /** Of something changed: what there was */
    before?: {
        type: ChangeType;
        mode: string;
        size?: number;
        target?: string;
        targetBase64?: string;
        modifiedAt: string | null;
    };
};

/** other: a fifo, socket or device */
export type ChangeType = "file" | "folder" | "link" | "other";

export type Sandbox = {
    sessionId: string;
    type: "sandbox";
    provider: string;
    ownKernel: boolean;
    state: "none" | "running" | "stopped" | "crashed";
    /** Why it crashed, or why nothing is limited */
    reason: string | null;
    image: string | null;
    resources: Resources;
    limits: "enforced" | "none" | null;
    startedAt: NullableTime;
    uptimeMs: NullableCount;
    usage: {
        cpuMs: NullableCount;
        memoryBytes: NullableCount;
        diskBytes: NullableCount;
        processes: NullableCount;
    };
    measuredAt: Time;
};

export type TextBlock = {
    type: "text";
    text: string;
};

export type ImageBlock = {
    type: "image";
    mimeType: "image/png" | "image/jpeg" | "image/gif" | "image/webp";
    /** base64 */
    data: string;
};

export type Block = TextBlock | ImageBlock;

export type UserMessage = {
    type: "user.message";
    content: string | Block[];
    /** followUp (default): after the running turn; steer: between its tool calls */
    deliverAs?: "followUp" | "steer";
};

export type UserInterrupt = {
    type: "user.interrupt";
};

export type EventsPost = UserMessage | UserInterrupt | {
    events: (UserMessage | UserInterrupt)[];
};

export type PostedEvent = {
    id: EventId;
    type: "user.message" | "user.interrupt";
    createdAt: Time;
    processedAt: null;
    sessionId: SessionId;
    content?: Block[];
    deliverAs?: "followUp" | "steer";
    requestId?: PostedBy;
};

/** X-Request-Id of the request that posted it */
export type PostedBy = string;

/** Clients must skip types that they do not know: later versions may add some. */
export type Event = UserMessageEvent | UserInterruptEvent | AgentMessageEvent | AgentThinkingEvent | AgentToolUseEvent | AgentToolResultEvent | SessionRunStartedEvent | SessionRescheduledEvent | SessionIdleEvent | SessionErrorEvent | SessionBudgetWarningEvent | SessionCompactedEvent | SessionForkedEvent | SessionUpdatedEvent | ModelRequestStartEvent | ModelRequestEndEvent | SandboxStartEvent;

/** What every event has. seq counts from 1 without gaps and is the id of its SSE frame; processedAt is null while a posted event waits. */
export type EventBase = {
    id: EventId;
    seq: number;
    createdAt: Time;
    processedAt: NullableTime;
    sessionId: SessionId;
};

/** What a client said, or a user message of an imported log */
export type UserMessageEvent = EventBase & {
    type: "user.message";
    content: Block[];
    deliverAs?: "followUp" | "steer";
    requestId?: PostedBy;
    /** It was withdrawn before it was processed */
    withdrawn?: true;
};

/** A client stopped the running turn */
export type UserInterruptEvent = EventBase & {
    type: "user.interrupt";
    requestId?: PostedBy;
};

/** What the agent said */
export type AgentMessageEvent = EventBase & {
    type: "agent.message";
    content: TextBlock[];
    /** The answer was cut off */
    partial?: true;
};

/** What the model thought */
export type AgentThinkingEvent = EventBase & {
    type: "agent.thinking";
    text: string;
    /** The provider keeps the text to itself */
    redacted?: true;
};

/** The agent calls a tool */
export type AgentToolUseEvent = EventBase & {
    type: "agent.tool_use";
    toolCallId: string;
    name: string;
    /** The arguments as the model gave them */
    input: Record<string, unknown>;
};

/** What a tool call came to */
export type AgentToolResultEvent = EventBase & {
    type: "agent.tool_result";
    toolCallId: string;
    name: string;
    content: Block[];
    isError: boolean;
    /** The call was cut off; its effects are not known */
    interrupted?: true;
};

/** A turn begins */
export type SessionRunStartedEvent = EventBase & {
    type: "session.status_run_started";
};

/** The session waits for the time that the session.error before it names, then asks the model again. The next span.model_request_start ends the wait. */
export type SessionRescheduledEvent = EventBase & {
    type: "session.status_rescheduled";
};

/** A turn is over */
export type SessionIdleEvent = EventBase & {
    type: "session.status_idle";
    stopReason: StopReason;
};

/** Something failed; retryStatus says whether it is tried again */
export type SessionErrorEvent = EventBase & {
    type: "session.error";
    error: {
        code: string;
        message: string;
    };
    retryStatus: RetryStatus;
};

/** Older parts of the conversation were replaced by a summary */
export type SessionCompactedEvent = EventBase & {
    type: "session.compacted";
    summaryEntryId: string;
    tokensBefore: number | null;
    tokensAfter: number | null;
};

/** The session was changed; the members say how it is now */
export type SessionUpdatedEvent = EventBase & {
    type: "session.updated";
    title?: string | null;
    metadata?: Metadata;
    agent?: SessionAgentUpdate;
    budget?: Budget | null;
};

/** The share of the budget that warnAt names is used: so many tokens, so many dollars. Once for each budget. */
export type SessionBudgetWarningEvent = EventBase & {
    type: "session.budget_warning";
    tokens: number;
    costUsd: number;
};

/** What stands before it was copied from another session */
export type SessionForkedEvent = EventBase & {
    type: "session.forked";
    fromSessionId: SessionId;
    fromEntryId: string;
    filesFrom: string;
};

/** The model is asked */
export type ModelRequestStartEvent = EventBase & {
    type: "span.model_request_start";
    requestNumber: number;
    attempt: number;
    provider: string;
    model: string;
    /** What the request may hold; the end has the true numbers */
    estimatedInputTokens?: number;
};

/** The model has answered, or failed to */
export type ModelRequestEndEvent = EventBase & {
    type: "span.model_request_end";
    requestNumber: number;
    attempt: number;
    provider: string;
    model: string;
    /** HTTP status of the model's server; 0 when there was none */
    status?: number;
    usage?: RequestUsage | null;
    price?: Price;
    costUsd?: number;
    /** Time to the first byte of the answer */
    ttftMs?: number | null;
    durationMs?: number;
    aborted?: boolean;
    error?: {
        code: string;
        message: string;
        /** Asking again is no use */
        unrecoverable?: boolean;
    } | null;
};

/** The sandbox was made, started again after it was stopped, or found again after a restart of the service. It comes before the result of the first tool call that needed it */
export type SandboxStartEvent = EventBase & {
    type: "span.sandbox_start";
    durationMs: number;
};

/** terminal: not tried again, the session stays usable. exhausted: tried as often as allowed. retrying: will be tried again. */
export type RetryStatus = {
    type: "retrying" | "exhausted" | "terminal";
    /** With retrying: the attempt that comes */
    attempt?: number;
    nextRetryAt?: Time;
};

/** Of one model request. The four kinds of tokens are disjoint. */
export type RequestUsage = {
    inputTokens: number;
    outputTokens: number;
    cacheReadInputTokens: number;
    cacheCreationInputTokens: number;
    /** The provider did not say; this is an estimate */
    estimated?: true;
};

/** USD per million tokens */
export type Price = {
    input: number;
    output: number;
    cacheRead?: number;
    cacheWrite?: number;
};

/** Frames of a stream that have no id: they are not in the log and are not repeated. */
export type StreamFrame = EventProcessedFrame | EventStartFrame | EventDeltaFrame | EventDiscardedFrame | SessionDeletedFrame;

/** A posted event was handed to the agent, or withdrawn */
export type EventProcessedFrame = {
    type: "event_processed";
    sessionId: SessionId;
    eventId: EventId;
    processedAt: Time;
};

/** An event begins to grow; the deltas that follow name its id */
export type EventStartFrame = {
    type: "event_start";
    sessionId: SessionId;
    eventId: EventId;
    eventType: "agent.message" | "agent.thinking";
};

/** A piece of an event's text, or of a tool's output (then eventId is that of the agent.tool_use) */
export type EventDeltaFrame = {
    type: "event_delta";
    sessionId: SessionId;
    eventId: EventId;
    toolCallId?: string;
    delta: {
        type: "text";
        index: number;
        text: string;
    };
};

/** What was shown of this event does not count any more */
export type EventDiscardedFrame = {
    type: "event_discarded";
    sessionId: SessionId;
    eventId: EventId;
};

/** The last frame of a stream whose session was deleted */
export type SessionDeletedFrame = {
    type: "session.deleted";
    sessionId: SessionId;
};

export type Entry = {
    position: number;
    entry: Record<string, unknown>;
};

export type ApiKeyCreate = {
    name: string;
    scope?: "read" | "write" | "admin";
};

export type ApiKey = {
    id: ApiKeyId;
    name: string;
    scope: "read" | "write" | "admin";
    last4: string;
    createdAt: Time;
    revokedAt: NullableTime;
};

export type ApiKeyCreated = {
    id: ApiKeyId;
    name: string;
    scope: "read" | "write" | "admin";
    last4: string;
    createdAt: Time;
    revokedAt: null;
    /** Shown once */
    apiKey: string;
};

export type Ready = {
    status: "ready" | "not_ready";
    checks: {
        database: ReadyCheck;
        broker: ReadyCheck;
        harness: ReadyCheck;
        sandbox: ReadyCheck;
    };
};

export type ReadyCheck = {
    ok: boolean;
    /** Why it is not */
    reason?: string;
};

/** Every operation of the API by its id. */
export interface Operations {
    /** List agents */
    listAgents: {
        method: "GET";
        path: "/v1/agents";
        params: {  };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc"; "name"?: string; "metadata"?: Record<string, string>; "includeArchived"?: "true" | "false" };
        body: undefined;
        status: 200;
        reply: Page<Agent>;
    };
    /** Create an agent */
    createAgent: {
        method: "POST";
        path: "/v1/agents";
        params: {  };
        query: {  };
        body: AgentCreate;
        status: 201;
        reply: Agent;
    };
    /** Get the newest version of an agent */
    getAgent: {
        method: "GET";
        path: "/v1/agents/{id}";
        params: { "id": AgentId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Agent;
    };
    /** Make a new version */
    updateAgent: {
        method: "PATCH";
        path: "/v1/agents/{id}";
        params: { "id": AgentId };
        query: {  };
        body: AgentUpdate;
        status: 200;
        reply: Agent;
    };
    /** Archive an agent for good */
    archiveAgent: {
        method: "POST";
        path: "/v1/agents/{id}/archive";
        params: { "id": AgentId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Agent;
    };
    /** List the versions of an agent */
    listAgentVersions: {
        method: "GET";
        path: "/v1/agents/{id}/versions";
        params: { "id": AgentId };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
        body: undefined;
        status: 200;
        reply: Page<Agent>;
    };
    /** Get one version of an agent */
    getAgentVersion: {
        method: "GET";
        path: "/v1/agents/{id}/versions/{version}";
        params: { "id": AgentId; "version": number };
        query: {  };
        body: undefined;
        status: 200;
        reply: Agent;
    };
    /** List vaults */
    listVaults: {
        method: "GET";
        path: "/v1/vaults";
        params: {  };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc"; "includeArchived"?: "true" | "false" };
        body: undefined;
        status: 200;
        reply: Page<Vault>;
    };
    /** Create a vault */
    createVault: {
        method: "POST";
        path: "/v1/vaults";
        params: {  };
        query: {  };
        body: VaultCreate;
        status: 201;
        reply: Vault;
    };
    /** Get a vault */
    getVault: {
        method: "GET";
        path: "/v1/vaults/{id}";
        params: { "id": VaultId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Vault;
    };
    /** Delete a vault for good */
    deleteVault: {
        method: "DELETE";
        path: "/v1/vaults/{id}";
        params: { "id": VaultId };
        query: {  };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** Archive a vault and all its credentials */
    archiveVault: {
        method: "POST";
        path: "/v1/vaults/{id}/archive";
        params: { "id": VaultId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Vault;
    };
    /** List the credentials of a vault */
    listCredentials: {
        method: "GET";
        path: "/v1/vaults/{id}/credentials";
        params: { "id": VaultId };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc"; "includeArchived"?: "true" | "false" };
        body: undefined;
        status: 200;
        reply: Page<Credential>;
    };
    /** Add a key of a model provider */
    createCredential: {
        method: "POST";
        path: "/v1/vaults/{id}/credentials";
        params: { "id": VaultId };
        query: {  };
        body: CredentialCreate;
        status: 201;
        reply: Credential;
    };
    /** Get a credential without its secret */
    getCredential: {
        method: "GET";
        path: "/v1/vaults/{id}/credentials/{key}";
        params: { "id": VaultId; "key": string };
        query: {  };
        body: undefined;
        status: 200;
        reply: Credential;
    };
    /** Replace a secret */
    updateCredential: {
        method: "PATCH";
        path: "/v1/vaults/{id}/credentials/{key}";
        params: { "id": VaultId; "key": string };
        query: {  };
        body: CredentialUpdate;
        status: 200;
        reply: Credential;
    };
    /** Archive a credential */
    archiveCredential: {
        method: "DELETE";
        path: "/v1/vaults/{id}/credentials/{key}";
        params: { "id": VaultId; "key": string };
        query: {  };
        body: undefined;
        status: 200;
        reply: Credential;
    };
    /** Try a key at its provider */
    validateCredential: {
        method: "POST";
        path: "/v1/vaults/{id}/credentials/{key}/validate";
        params: { "id": VaultId; "key": string };
        query: {  };
        body: CredentialValidate;
        status: 200;
        reply: CredentialValidation;
    };
    /** List environments */
    listEnvironments: {
        method: "GET";
        path: "/v1/environments";
        params: {  };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc"; "name"?: string; "includeArchived"?: "true" | "false" };
        body: undefined;
        status: 200;
        reply: Page<Environment>;
    };
    /** Create an environment */
    createEnvironment: {
        method: "POST";
        path: "/v1/environments";
        params: {  };
        query: {  };
        body: EnvironmentCreate;
        status: 201;
        reply: Environment;
    };
    /** Get an environment */
    getEnvironment: {
        method: "GET";
        path: "/v1/environments/{id}";
        params: { "id": EnvironmentId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Environment;
    };
    /** Change an environment */
    updateEnvironment: {
        method: "PATCH";
        path: "/v1/environments/{id}";
        params: { "id": EnvironmentId };
        query: {  };
        body: EnvironmentUpdate;
        status: 200;
        reply: Environment;
    };
    /** Delete an environment for good */
    deleteEnvironment: {
        method: "DELETE";
        path: "/v1/environments/{id}";
        params: { "id": EnvironmentId };
        query: {  };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** Archive an environment for good */
    archiveEnvironment: {
        method: "POST";
        path: "/v1/environments/{id}/archive";
        params: { "id": EnvironmentId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Environment;
    };
    /** List sessions */
    listSessions: {
        method: "GET";
        path: "/v1/sessions";
        params: {  };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc"; "status"?: SessionStatus; "agentId"?: string; "environmentId"?: string; "requestId"?: string };
        body: undefined;
        status: 200;
        reply: Page<Session>;
    };
    /** Create a session */
    createSession: {
        method: "POST";
        path: "/v1/sessions";
        params: {  };
        query: {  };
        body: SessionCreate;
        status: 201;
        reply: Session;
    };
    /** Make a session of a log */
    importSession: {
        method: "POST";
        path: "/v1/sessions/import";
        params: {  };
        query: { "agent": AgentId; "environmentId": EnvironmentId; "title"?: string };
        body: string;
        status: 201;
        reply: Session;
    };
    /** Get a session with its usage */
    getSession: {
        method: "GET";
        path: "/v1/sessions/{id}";
        params: { "id": SessionId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Session;
    };
    /** Change a session */
    updateSession: {
        method: "PATCH";
        path: "/v1/sessions/{id}";
        params: { "id": SessionId };
        query: {  };
        body: SessionUpdate;
        status: 200;
        reply: Session;
    };
    /** Delete a session */
    deleteSession: {
        method: "DELETE";
        path: "/v1/sessions/{id}";
        params: { "id": SessionId };
        query: { "purge"?: "true" | "false" };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** List the events of a session */
    listEvents: {
        method: "GET";
        path: "/v1/sessions/{id}/events";
        params: { "id": SessionId };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc"; "type"?: string };
        body: undefined;
        status: 200;
        reply: Page<Event>;
    };
    /** Post one event, or up to 50 */
    postEvents: {
        method: "POST";
        path: "/v1/sessions/{id}/events";
        params: { "id": SessionId };
        query: {  };
        body: EventsPost;
        status: 202;
        reply: {
            data: PostedEvent[];
        };
    };
    /** Withdraw a queued message */
    withdrawEvent: {
        method: "DELETE";
        path: "/v1/sessions/{id}/events/{eventId}";
        params: { "id": SessionId; "eventId": EventId };
        query: {  };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** Watch a session */
    streamEvents: {
        method: "GET";
        path: "/v1/sessions/{id}/stream";
        params: { "id": SessionId };
        query: { "lastEventId"?: number; "eventDeltas"?: string };
        body: undefined;
        status: 200;
        reply: string;
    };
    /** List the lines of a session's log */
    listEntries: {
        method: "GET";
        path: "/v1/sessions/{id}/entries";
        params: { "id": SessionId };
        query: { "limit"?: number; "cursor"?: string; "from"?: number; "order"?: "asc" | "desc" };
        body: undefined;
        status: 200;
        reply: Page<Entry>;
    };
    /** Draw the tree of a session's log */
    getSessionTree: {
        method: "GET";
        path: "/v1/sessions/{id}/tree";
        params: { "id": SessionId };
        query: { "limit"?: number; "cursor"?: string; "from"?: number; "order"?: "asc" | "desc" };
        body: undefined;
        status: 200;
        reply: Page<TreeNode>;
    };
    /** Get the messages that the model is shown */
    getSessionMessages: {
        method: "GET";
        path: "/v1/sessions/{id}/messages";
        params: { "id": SessionId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Messages;
    };
    /** Get what a session has used */
    getSessionUsage: {
        method: "GET";
        path: "/v1/sessions/{id}/usage";
        params: { "id": SessionId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Usage;
    };
    /** Fork a session */
    forkSession: {
        method: "POST";
        path: "/v1/sessions/{id}/fork";
        params: { "id": SessionId };
        query: {  };
        body: SessionFork;
        status: 201;
        reply: Session;
    };
    /** Download the log */
    exportSession: {
        method: "GET";
        path: "/v1/sessions/{id}/export";
        params: { "id": SessionId };
        query: {  };
        body: undefined;
        status: 200;
        reply: string;
    };
    /** Measure a session's sandbox */
    getSessionSandbox: {
        method: "GET";
        path: "/v1/sessions/{id}/sandbox";
        params: { "id": SessionId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Sandbox;
    };
    /** What a session changed */
    getSessionDiff: {
        method: "GET";
        path: "/v1/sessions/{id}/diff";
        params: { "id": SessionId };
        query: { "path"?: string; "format"?: "json" | "patch" };
        body: undefined;
        status: 200;
        reply: Diff;
    };
    /** Download the working directory */
    getSessionWorkspace: {
        method: "GET";
        path: "/v1/sessions/{id}/workspace";
        params: { "id": SessionId };
        query: { "path"?: string; "changes"?: "true" | "false" };
        body: undefined;
        status: 200;
        reply: string;
    };
    /** Open a terminal in a session's sandbox */
    openSessionShell: {
        method: "POST";
        path: "/v1/sessions/{id}/shell";
        params: { "id": SessionId };
        query: {  };
        body: undefined;
        status: 101;
        reply: undefined;
    };
    /** Sandbox metrics for Prometheus */
    getMetrics: {
        method: "GET";
        path: "/metrics";
        params: {  };
        query: {  };
        body: undefined;
        status: 200;
        reply: string;
    };
    /** List API keys */
    listApiKeys: {
        method: "GET";
        path: "/v1/api-keys";
        params: {  };
        query: { "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
        body: undefined;
        status: 200;
        reply: Page<ApiKey>;
    };
    /** Create an API key */
    createApiKey: {
        method: "POST";
        path: "/v1/api-keys";
        params: {  };
        query: {  };
        body: ApiKeyCreate;
        status: 201;
        reply: ApiKeyCreated;
    };
    /** Revoke an API key */
    revokeApiKey: {
        method: "DELETE";
        path: "/v1/api-keys/{id}";
        params: { "id": string };
        query: {  };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** List volumes */
    listVolumes: {
        method: "GET";
        path: "/v1/volumes";
        params: {  };
        query: { "name"?: string; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
        body: undefined;
        status: 200;
        reply: Page<Volume>;
    };
    /** Create a volume */
    createVolume: {
        method: "POST";
        path: "/v1/volumes";
        params: {  };
        query: {  };
        body: VolumeCreate;
        status: 201;
        reply: Volume;
    };
    /** Get a volume */
    getVolume: {
        method: "GET";
        path: "/v1/volumes/{id}";
        params: { "id": VolumeId };
        query: {  };
        body: undefined;
        status: 200;
        reply: Volume;
    };
    /** Remove a volume with all that is in it */
    deleteVolume: {
        method: "DELETE";
        path: "/v1/volumes/{id}";
        params: { "id": VolumeId };
        query: {  };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** List files */
    listFiles: {
        method: "GET";
        path: "/v1/files";
        params: {  };
        query: { "sessionId"?: SessionId; "limit"?: number; "cursor"?: string; "order"?: "asc" | "desc" };
        body: undefined;
        status: 200;
        reply: Page<File>;
    };
    /** Upload a file */
    uploadFile: {
        method: "POST";
        path: "/v1/files";
        params: {  };
        query: {  };
        body: Record<string, unknown>;
        status: 201;
        reply: File;
    };
    /** Get a file's metadata */
    getFile: {
        method: "GET";
        path: "/v1/files/{id}";
        params: { "id": FileId };
        query: {  };
        body: undefined;
        status: 200;
        reply: File;
    };
    /** Delete a file */
    deleteFile: {
        method: "DELETE";
        path: "/v1/files/{id}";
        params: { "id": FileId };
        query: {  };
        body: undefined;
        status: 204;
        reply: undefined;
    };
    /** Download a file */
    downloadFile: {
        method: "GET";
        path: "/v1/files/{id}/content";
        params: { "id": FileId };
        query: {  };
        body: undefined;
        status: 200;
        reply: unknown;
    };
    /** Get the key's tenant, its limits and what it uses */
    getTenant: {
        method: "GET";
        path: "/v1/tenant";
        params: {  };
        query: {  };
        body: undefined;
        status: 200;
        reply: Tenant;
    };
    /** Does the process answer? */
    health: {
        method: "GET";
        path: "/healthz";
        params: {  };
        query: {  };
        body: undefined;
        status: 200;
        reply: {
            status: "ok";
            version: string;
        };
    };
    /** Is every part there that a session needs? */
    ready: {
        method: "GET";
        path: "/readyz";
        params: {  };
        query: {  };
        body: undefined;
        status: 200;
        reply: Ready;
    };
}

/* clang-format off */
/* The turn machine: decides what one session does next. Pure: no I/O, no threads, time and
   randomness are given. An input leads to LINES for the log and EFFECTS; the caller makes the lines
   durable first and then performs the effects in order (manager.h). State is rebuilt from the log
   by turn_load_line, so that a crash at any point loses nothing that left.

     idle ──user.message──► running(OPENING host) ──opened──► running(ACTIVE) ──settled──► idle
                              ▲      host lost (calls go on) ──────┘   │ interrupt → ABORTING ─┘
*/
/* clang-format on */
#ifndef SESSION_TURN_H
#define SESSION_TURN_H

#include "base/arena.h"
#include "base/json.h"
#include "session/store.h"

struct turn;

struct turn_options {
    const char *tenant, *session;
    uint64_t (*random)(void *arg); /* for line ids */
    void *random_arg;
    /* USD of a usage with this session's model; known=false when there is no price (§9.7, R27). */
    double (*price)(void *arg, const struct session_usage *usage, json_t *out_price,
                    bool *out_known);
    void *price_arg;
    const json_t *budget; /* R27: {maxTokens?, maxUsd?, warnAt?}, or NULL */
    /* R53: holds what a request may cost of what the tenant may spend, until settle says what it
       did cost. NULL = no limit. E_QUOTA with the text for people. */
    err (*reserve)(void *arg, int64_t now_ms, double usd);
    void (*settle)(void *arg, double usd);
    void *spend_arg;
    const char *provider, *model; /* named in span events */
    int64_t max_running_ms;       /* R30: all turns together may run this long; 0 = no limit */
};

enum turn_input_kind {
    TURN_POSTED,          /* event: an inbox event */
    TURN_WITHDRAW,        /* id: of a queued message */
    TURN_HOST_OPENED,     /* ok, text; not ok: name = error code, number 1 = another host may do */
    TURN_HOST_REPLIED,    /* name: op, ok, text: a refused op */
    TURN_HOST_LOST,       /* text */
    TURN_ENTRY,           /* bytes: a log line made by Pi */
    TURN_DELTA,           /* event: envelope */
    TURN_TOOL,            /* id: call, name, bytes: input */
    TURN_TOOL_CANCELLED,  /* id: call */
    TURN_TOOL_UPDATE,     /* id: call, number: offset, bytes */
    TURN_TOOL_RESULT,     /* id: call, bytes: result JSON */
    TURN_SANDBOX_STARTED, /* number: ms that it took */
    /* name: code ("": sandbox_unavailable), text: for session.error; the call's result follows as
       TURN_TOOL_RESULT */
    TURN_SANDBOX_FAILED,
    TURN_REQUEST_BEGIN, /* id: request, number: tokens it may hold */
    TURN_REQUEST_END,   /* id: request, event: request_end */
    TURN_RETRY,         /* Pi asks the model again by itself */
    TURN_BROKER_LOST,
    TURN_SETTLED, /* ok = not aborted, text: error or NULL */
    TURN_RECOVER, /* after loading: go on with what a crash interrupted; ok = sandbox kept its
                     processes */
    TURN_TICK,    /* time passed; see turn_deadline */
    TURN_CHANGED  /* event: session.updated; ok: the agent changed, its host was closed. Only when
                     turn_may_reopen says so */
};

struct turn_input {
    enum turn_input_kind kind;
    int64_t now_ms; /* wall clock */
    const char *id, *name, *text;
    bool ok;
    int64_t number;
    struct str bytes;
    const json_t *event;
};

enum turn_effect_kind {
    EFFECT_HOST_OPEN,   /* open with the context of the log as it is now */
    EFFECT_HOST_PROMPT, /* bytes: content blocks */
    EFFECT_HOST_STEER,  /* bytes: content blocks */
    EFFECT_HOST_RESUME, /* bytes: toolResult messages, one a line; text: note or NULL */
    EFFECT_HOST_ABORT,
    EFFECT_HOST_RESULT,  /* id: call, bytes: result */
    EFFECT_TOOL_START,   /* id: call, name, bytes: input */
    EFFECT_TOOL_ATTACH,  /* id: call, name: find the result of a call started by an earlier process
                          */
    EFFECT_TOOL_CANCEL,  /* id: call */
    EFFECT_TOOL_ACK,     /* id: call: its result is durable */
    EFFECT_SANDBOX_WARM, /* start the sandbox in the background */
    EFFECT_REQUEST_GO,   /* id: request, number */
    EFFECT_REQUEST_HOLD, /* id: request, number: milliseconds that it will wait for its go */
    EFFECT_REQUEST_REFUSE, /* id: request, name: code, text */
    EFFECT_REQUEST_CANCEL,
    EFFECT_FRAME, /* stream-only: name: type, text: delta_of or NULL, bytes: JSON */
    EFFECT_STATUS /* the row: name: status, bytes: stop reason or empty */
};

struct turn_effect {
    struct turn_effect *next;
    enum turn_effect_kind kind;
    const char *id, *name, *text;
    int64_t number;
    struct str bytes;
};

/* What a step leads to; in the arena given to turn_step. `lines` are whole log lines in order. An
   effect may rely on every line of its step. */
struct turn_output {
    struct str *lines;
    size_t line_count;
    struct turn_effect *effects;
    bool withdrawn, withdraw_unknown; /* answer to TURN_WITHDRAW */
};

struct turn *turn_new(const struct turn_options *o);
void turn_free(struct turn *t);
/* Rebuilds state from a line of the log; all of them, in order, before the first step. */
void turn_load_line(struct turn *t, struct str line);
void turn_step(struct turn *t, const struct turn_input *in, struct arena *a,
               struct turn_output *out);
/* When turn_step wants a TURN_TICK at the latest; -1 = never. Wall clock. */
int64_t turn_deadline_ms(const struct turn *t);
bool turn_is_running(const struct turn *t);
/* Idle, and no host on its way: the agent's configuration may change. */
bool turn_may_reopen(const struct turn *t);
bool turn_is_quiet(const struct turn *t);       /* idle, nothing queued or held: may be unloaded */
bool turn_needs_recovery(const struct turn *t); /* after loading */
bool turn_knows_event(const struct turn *t, const char *event_id); /* inbox dedupe */
const struct session_usage *turn_usage(const struct turn *t);
int64_t turn_spent_at_ms(const struct turn *t); /* when its usage last grew; 0: never */

#endif

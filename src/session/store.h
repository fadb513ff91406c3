/* Database rows of sessions and their inbox. The conversation itself is the log; a row holds what
   lists and filters need and is brought up to date from the log, never the other way round.
   Functions run inside db_read / db_write on the calling thread; strings they return live in the
   arena. */
#ifndef SESSION_STORE_H
#define SESSION_STORE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "db/db.h"

struct session_usage { /* R28: disjoint */
    int64_t input_tokens, output_tokens, cache_read_tokens, cache_creation_tokens;
    double cost_usd;
    bool estimated;
};

struct session_row {
    char id[ID_MAX], tenant[ID_MAX];
    char agent_id[ID_MAX], environment_id[ID_MAX];
    int64_t agent_version;
    const char *agent_json;       /* resolved agent config of this session, overrides applied */
    const char *environment_json; /* the environment as it was at create */
    const char *title;            /* NULL if none */
    const char *metadata_json;    /* object */
    const char *budget_json;      /* NULL if none */
    const char *vault_ids_json;   /* array */
    const char *resources_json;   /* array of {type, fileId, path, key}; NULL if none */
    const char *status;           /* idle running rescheduling terminated */
    const char *stop_reason_json; /* NULL before the first turn */
    const char *sandbox_state;    /* none running stopped crashed */
    struct session_usage usage;
    int64_t created_at_ms, updated_at_ms, last_activity_ms;
};

/* E_QUOTA when the tenant has as many as it may (§27.3). */
err session_insert(struct db_conn *c, const struct session_row *row);
/* E_NOT_FOUND also for another tenant's and for deleted sessions. */
err session_find(struct db_conn *c, struct arena *a, const char *tenant, struct str id,
                 struct session_row *out);

/* Notes that the request with this id made or spoke to the session, for the filter below. */
err session_note_request(struct db_conn *c, const char *tenant, const char *session,
                         const char *request_id);

struct session_filter {
    const char *status, *agent_id, *environment_id, *request_id; /* NULL = any */
    bool has_after, ascending;
    int64_t after_at_ms;
    const char *after_id;
    uint32_t limit;
};
/* Rows in (created_at, id) order, newest first unless ascending; *out is an arena array. */
err session_list(struct db_conn *c, struct arena *a, const char *tenant,
                 const struct session_filter *filter, struct session_row **out, size_t *out_n);
/* The row as the API shows it, without its last brace: the caller adds what depends on the
   configuration. What is JSON in the row is written as it stands there, not read. */
void session_row_write(const struct session_row *row, struct buf *out);
void session_usage_write(const struct session_usage *u, struct buf *out); /* a whole object */
/* change: any of title (string or null), metadata (object), budget (object or null); agent_json
 * NULL = unchanged. */
err session_change_row(struct db_conn *c, const char *tenant, const char *id, const json_t *change,
                       const char *agent_json, int64_t now_ms);
err session_mark_deleted(struct db_conn *c, const char *tenant, const char *id, int64_t now_ms);

/* Inbox: events a client posted, durable with the request, moved to the log once, by id (R21).
   `event` is the event as it will stand in the log: {id, type, createdAt, …}. */
err inbox_add(struct db_conn *c, const char *tenant, const char *session, const char *event_id,
              struct str event, int64_t now_ms);
struct inbox_item {
    const char *event_id;
    struct str event;
    int64_t position;
};
#define INBOX_BATCH 64 /* the oldest ones, at most so many */
err inbox_pending(struct db_conn *c, struct arena *a, const char *tenant, const char *session,
                  struct inbox_item **out, size_t *out_n);
err inbox_remove(struct db_conn *c, const char *tenant, const char *session,
                 int64_t up_to_position);

/* What the manager writes back after log lines are durable. NULL / 0 = unchanged. */
struct session_update {
    const char *status, *stop_reason_json, *sandbox_state;
    const struct session_usage *usage;
    int64_t activity_ms;
};
err session_apply(struct db_conn *c, const char *tenant, const char *id,
                  const struct session_update *u, int64_t now_ms);

/* How many of the tenant's sandboxes run, but for the session `except`. */
err sessions_count_sandboxes(struct db_conn *c, const char *tenant, const char *except,
                             int64_t *out);
/* The row says running from here on, so that of many starts at once only as many go on as the
   tenant may have sandboxes (§27.3): E_QUOTA otherwise, E_NOT_FOUND when the session is gone. The
   one that then fails to start puts back what was before. */
#define SANDBOX_STATE_MAX 16
err session_reserve_sandbox(struct db_conn *c, const char *tenant, const char *id, int64_t now_ms,
                            char out_before[SANDBOX_STATE_MAX]);

/* System sweeps, across tenants (R50: pm_system). */
struct session_ref {
    char tenant[ID_MAX], id[ID_MAX];
};
/* Running, or with something in the inbox: what a starting service must wake. */
err sessions_unfinished(struct db_conn *c, struct arena *a, struct session_ref **out,
                        size_t *out_n);
/* Idle with a running sandbox for longer than their environment's idle timeout (R30). */
err sessions_to_stop(struct db_conn *c, struct arena *a, int64_t now_ms, struct session_ref **out,
                     size_t *out_n);
/* Deleted before `before_ms` (R29): the oldest, at most SESSIONS_EXPIRED_MAX. */
#define SESSIONS_EXPIRED_MAX 64
err sessions_expired(struct db_conn *c, struct arena *a, int64_t before_ms,
                     struct session_ref **out, size_t *out_n);
/* Removes the row of a deleted session for good. */
err session_forget(struct db_conn *c, const char *tenant, const char *id);
/* Whose row says that their sandbox runs. */
err sessions_with_sandbox(struct db_conn *c, struct arena *a, struct session_ref **out,
                          size_t *out_n);
/* 1 if a live session of that id exists in any tenant (R35: is this sandbox an orphan?). */
err session_exists(struct db_conn *c, const char *id, bool *out);

#endif

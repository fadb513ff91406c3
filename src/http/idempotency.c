/* R12: Idempotency-Key. A reply is kept in the same savepoint as the effect it reports (ctx_write),
   so a crash between the two cannot make a duplicate. Keys under way in this process are in a list;
   two nodes racing are settled by the primary key of the table. Kept: what the handler answered,
   except 401, 429 and 5xx, for 24 hours. */
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "db/db.h"
#include "http/exchange.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define KEEP_MS INT64_C(86400000)
#define KEY_MAX 255
#define HASH_BYTES 32
#define HEX_BYTES (HASH_BYTES * 2 + 1)
#define IDEMPOTENCY_MAGIC 0x4944454du

struct running {
    struct running *next;
    const char *tenant, *scope, *key;
};

struct idempotency {
    unsigned magic;
    struct db *db;
    pthread_mutex_t running_lock;
    struct running *running; /* requests whose handler runs now; lives on the worker's stack */
};

struct record {
    struct http_exchange *x;
    const char *scope;
    char fingerprint[HEX_BYTES];
    bool found;
    char kept_fingerprint[HEX_BYTES];
};

static const char sql_find[] =
    "SELECT fingerprint, status, headers, body FROM idempotency"
    " WHERE tenant_id = $1 AND scope = $2 AND key = $3 AND created_at > $4";

/* An expired row is taken over; a live one leaves nothing changed. */
static const char sql_keep[] =
    "INSERT INTO idempotency (tenant_id, scope, key, fingerprint, status, headers, body, "
    "created_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"
    " ON CONFLICT (tenant_id, scope, key) DO UPDATE SET fingerprint = excluded.fingerprint,"
    " status = excluded.status, headers = excluded.headers, body = excluded.body,"
    " created_at = excluded.created_at"
    " WHERE idempotency.tenant_id = $1 AND idempotency.created_at <= $9";

/* Across tenants: names tenant_id so that the check on tenant tables sees it was thought of. */
static const char sql_sweep[] =
    "DELETE FROM idempotency WHERE tenant_id IS NOT NULL AND created_at <= $1";

struct idempotency *idempotency_new(struct db *db)
{
    struct idempotency *i = mem_alloc(sizeof *i);
    i->magic = IDEMPOTENCY_MAGIC;
    i->db = db;
    pthread_mutex_init(&i->running_lock, NULL);
    return i;
}

void idempotency_free(struct idempotency *i)
{
    if (i == NULL)
        return;
    CHECK(i, IDEMPOTENCY_MAGIC);
    assert(i->running == NULL);
    pthread_mutex_destroy(&i->running_lock);
    i->magic = 0;
    mem_free(i);
}

/* RFC 8941 strings may escape only the quote and the backslash. */
static bool unquote(struct str value, char *out, size_t *out_n)
{
    size_t n = 0;
    if (value.n < 2 || value.p[value.n - 1] != '"')
        return false;
    for (size_t i = 1; i + 1 < value.n; i++) {
        char c = value.p[i];
        if (c == '"')
            return false;
        if (c == '\\') {
            c = value.p[++i];
            if (i + 1 == value.n || (c != '"' && c != '\\'))
                return false;
        }
        out[n++] = c;
    }
    *out_n = n;
    return true;
}

err idempotency_key_read(struct arena *a, struct str value, const char **out)
{
    char *key = arena_alloc(a, value.n + 1);
    size_t n = value.n;
    bool ok = true;
    if (n && value.p[0] == '"')
        ok = unquote(value, key, &n);
    else if (n)
        memcpy(key, value.p, n);
    for (size_t i = 0; ok && i < n; i++)
        ok = key[i] > 0x20 && key[i] < 0x7f;
    if (!ok || n == 0 || n > KEY_MAX)
        return fail_as(E_INVALID, "invalid_idempotency_key",
                       "Idempotency-Key must be 1 to %d visible ASCII characters, bare or quoted",
                       KEY_MAX);
    key[n] = 0;
    *out = key;
    return 0;
}

static void fingerprint_of(const struct http_exchange *x, char *out)
{
    crypto_generichash_state state;
    unsigned char hash[HASH_BYTES];
    crypto_generichash_init(&state, NULL, 0, sizeof hash);
    if (x->ctx.route->upload)
        crypto_generichash_update(&state, x->fingerprint, sizeof x->fingerprint);
    else
        crypto_generichash_update(&state, (const unsigned char *)x->ctx.body.p, x->ctx.body.n);
    if (x->raw_query.n) { /* the rest of what the request asks for */
        crypto_generichash_update(&state, (const unsigned char *)"\0?", 2);
        crypto_generichash_update(&state, (const unsigned char *)x->raw_query.p, x->raw_query.n);
    }
    crypto_generichash_final(&state, hash, sizeof hash);
    sodium_bin2hex(out, HEX_BYTES, hash, sizeof hash);
}

static struct record record_of(struct http_exchange *x)
{
    struct record r = {.x = x};
    r.scope = arena_printf(x->ctx.arena, "%s %.*s", x->method_name, STR_ARG(x->path));
    fingerprint_of(x, r.fingerprint);
    return r;
}

static bool is_kept(int status)
{
    return status < 500 && status != 429 && status != 401;
}

static struct str fields_to_text(struct http_exchange *x)
{
    AUTO_JSON list = json_array();
    if (x->reply.content_type)
        json_array_append_new(list, json_pack("[ss]", "Content-Type", x->reply.content_type));
    for (const struct reply_field *f = x->reply.fields; f; f = f->next)
        json_array_append_new(list, json_pack("[ss]", f->name, f->value));
    return json_write_arena(list, x->ctx.arena);
}

static err in_flight(void)
{
    return fail_as(E_CONFLICT, CODE_IN_FLIGHT,
                   "a request with this Idempotency-Key is still running: try again in a second");
}

static err keep(struct db_conn *c, struct record *r)
{
    struct http_exchange *x = r->x;
    struct str body = x->reply.body.n ? x->reply.body : STR(""); /* never NULL */
    int64_t now = clock_wall_ms(x->ctx.clock), changed = 0;
    TRY(db_exec(c, sql_keep,
                DB_ARGS(DB_C(x->ctx.tenant), DB_C(r->scope), DB_C(x->idempotency_key),
                        DB_C(r->fingerprint), DB_I(x->reply.status), DB_S(fields_to_text(x)),
                        DB_B(body), DB_I(now), DB_I(now - KEEP_MS)),
                &changed));
    return changed == 1 ? 0 : in_flight();
}

struct write {
    struct record record;
    struct ctx *ctx;
    err (*fn)(struct ctx *ctx, struct db_conn *c, void *arg);
    void *arg;
    struct reply_field **fields_end; /* where the fields stood that the handler set before */
};

static void take_back_reply(const struct write *w)
{
    struct http_reply *reply = &w->ctx->exchange->reply;
    *w->fields_end = NULL;
    *reply = (struct http_reply){.fields = reply->fields, .fields_end = w->fields_end};
}

/* The database's thread. May run again from the start (a group that failed to commit). */
static err write_and_keep(struct db_conn *c, void *arg)
{
    struct write *w = arg;
    struct http_exchange *x = w->ctx->exchange;
    take_back_reply(w);
    TRY(w->fn(w->ctx, c, w->arg));
    if (!x->reply.set)
        return fail(E_INTERNAL, "the write of %s set no reply", w->ctx->route->path);
    if (x->idempotency_key == NULL || !is_kept(x->reply.status))
        return 0;
    TRY(keep(c, &w->record));
    x->replayed_or_kept = true;
    return 0;
}

err ctx_write(struct ctx *ctx, err (*fn)(struct ctx *ctx, struct db_conn *c, void *arg), void *arg)
{
    struct http_exchange *x = ctx->exchange;
    struct write w = {.ctx = ctx, .fn = fn, .arg = arg, .fields_end = x->reply.fields_end};
    if (x->idempotency_key)
        w.record = record_of(x);
    err e = db_write(x->options->db, write_and_keep, &w);
    if (e) { /* a reply that was made but not committed never leaves */
        x->replayed_or_kept = false;
        take_back_reply(&w);
    }
    return e;
}

static bool is_same(const struct running *r, const struct running *other)
{
    return strcmp(r->key, other->key) == 0 && strcmp(r->scope, other->scope) == 0 &&
           strcmp(r->tenant, other->tenant) == 0;
}

static bool claim(struct idempotency *i, struct running *own)
{
    AUTO_LOCK(&i->running_lock);
    for (const struct running *r = i->running; r; r = r->next)
        if (is_same(r, own))
            return false;
    own->next = i->running;
    i->running = own;
    return true;
}

static void release(struct idempotency *i, struct running *own)
{
    AUTO_LOCK(&i->running_lock);
    struct running **at = &i->running;
    while (*at != own)
        at = &(*at)->next;
    *at = own->next;
}

/* Makes the reply of a kept row. */
static void load_reply(struct http_exchange *x, struct db_rows *rows)
{
    struct ctx *ctx = &x->ctx;
    exchange_reset_reply(x);
    const char *content_type = NULL;
    json_t *fields = NULL;
    if (json_read(db_str(rows, 2), &fields) == 0) {
        size_t i;
        json_t *pair;
        json_array_foreach(fields, i, pair)
        {
            const char *name = json_string_value(json_array_get(pair, 0));
            const char *value = json_string_value(json_array_get(pair, 1));
            if (name && value && strcmp(name, "Content-Type") == 0)
                content_type = arena_strdup(ctx->arena, value);
            else if (name && value)
                reply_header(ctx, name, value);
        }
        json_decref(fields);
    }
    reply_header(ctx, "Idempotent-Replayed", "true");
    int status = (int)db_int(rows, 1);
    if (content_type)
        reply_bytes(ctx, status, content_type, db_str(rows, 3));
    else
        reply_empty(ctx, status);
}

static err find_kept(struct db_conn *c, void *arg)
{
    struct record *r = arg;
    struct http_exchange *x = r->x;
    int64_t oldest = clock_wall_ms(x->ctx.clock) - KEEP_MS;
    struct db_rows *rows;
    TRY(db_query(
        c, sql_find,
        DB_ARGS(DB_C(x->ctx.tenant), DB_C(r->scope), DB_C(x->idempotency_key), DB_I(oldest)),
        &rows));
    r->found = db_next(rows);
    if (r->found) {
        snprintf(r->kept_fingerprint, sizeof r->kept_fingerprint, "%.*s", STR_ARG(db_str(rows, 0)));
        if (strcmp(r->kept_fingerprint, r->fingerprint) == 0)
            load_reply(x, rows);
    }
    return db_rows_done(rows);
}

static err keep_alone(struct db_conn *c, void *arg)
{
    return keep(c, arg);
}

/* The handler failed or replied without a write: its answer is kept all the same, so that a retry
   hears the same. Failing to keep it costs nothing but that: there was no effect. */
static void keep_answer(struct idempotency *i, struct record *r)
{
    struct http_exchange *x = r->x;
    if (x->replayed_or_kept || x->reply.stream || !is_kept(x->reply.status))
        return;
    err e = db_write(i->db, keep_alone, r);
    if (e)
        log_warn("a reply to an Idempotency-Key was not kept: %s", err_text());
}

static err run_claimed(struct idempotency *i, struct record *r)
{
    struct http_exchange *x = r->x;
    TRY(db_read(i->db, find_kept, r));
    if (r->found && strcmp(r->kept_fingerprint, r->fingerprint) != 0)
        return fail_as(E_UNPROCESSABLE, "idempotency_key_reused",
                       "this Idempotency-Key was used with another body: take a new key");
    if (r->found)
        return 0;
    err e = x->ctx.route->handler(&x->ctx);
    if (e && strcmp(err_code(), CODE_IN_FLIGHT) == 0)
        return e; /* another node was faster: its answer is the one to keep */
    if (e)
        problem_reply(x, e);
    else if (!x->reply.set)
        return fail(E_INTERNAL, "the handler of %s set no reply", x->ctx.route->path);
    keep_answer(i, r);
    return 0;
}

err idempotency_run(struct idempotency *i, struct http_exchange *x)
{
    CHECK(i, IDEMPOTENCY_MAGIC);
    struct record r = record_of(x);
    struct running own = {.tenant = x->ctx.tenant, .scope = r.scope, .key = x->idempotency_key};
    if (!claim(i, &own))
        return in_flight();
    err e = run_claimed(i, &r);
    release(i, &own);
    return e;
}

static err sweep(struct db_conn *c, void *arg)
{
    const int64_t *now_ms = arg;
    return db_exec(c, sql_sweep, DB_ARGS(DB_I(*now_ms - KEEP_MS)), NULL);
}

err idempotency_sweep(struct db *db, int64_t now_ms)
{
    return db_write(db, sweep, &now_ms);
}

/* One session's run on an executor: messages → turn machine → lines → fsync → events and effects.
 */
#include "session/live.h"

#include "base/log.h"
#include "base/mem.h"
#include "session/archive.h"
#include "session/price.h"

#include <sodium.h>
#include <stdio.h>

/* What a batch of messages led to, in order. */
struct outcome {
    struct outcome *next;
    struct turn_output out;
    struct waiter *waiter;
    bool is_withdraw;
    struct err_slot *refused; /* what the waiter is told instead */
};

struct run {
    struct live *l;
    struct arena *a;
    struct outcome *first, **tail;
    int64_t inbox_up_to; /* rows now in the log; 0 = none */
    bool inbox_full;     /* there may be more than were read */
    bool idle_reached;
    bool row_first; /* who sees the event must find the row saying so */
    const char *status, *stop_reason;
};

/* §10.3: files stay, processes do not, and the model should not go looking for them. */
static void note_processes_gone(struct live *l)
{
    mem_free(l->sandbox_note);
    l->sandbox_note =
        mem_strdup("The sandbox was stopped since your last turn. Its files are kept, but "
                   "processes that were running in it are gone.");
}

/* ---- loading ---- */

static uint64_t random_bits(void *arg)
{
    (void)arg;
    uint64_t v;
    randombytes_buf(&v, sizeof v);
    return v;
}

static double price_of_usage(void *arg, const struct session_usage *u, json_t *out_price,
                             bool *out_known)
{
    struct live *l = arg;
    struct catalog_price p;
    *out_known = price_find(l->m->o.catalog, json_object_get(l->agent, "model"), &p);
    return *out_known ? price_usage(&p, u, out_price) : 0;
}

/* R53. A database that cannot be read holds no request up: the next one is asked about again. */
static err reserve(void *arg, int64_t now_ms, double usd)
{
    struct live *l = arg;
    err e = spend_reserve(l->m->spend, l->tenant, now_ms, &l->hold, usd);
    if (e == 0 || e == E_QUOTA)
        return e;
    log_error("cannot read what the tenant has spent: %s", err_text());
    return 0;
}

static void settle(void *arg, double usd)
{
    struct live *l = arg;
    spend_settle(l->m->spend, l->tenant, &l->hold, usd);
}

static err find_row(struct db_conn *c, void *arg)
{
    struct live *l = arg;
    return session_find(c, l->config, l->tenant, str_of(l->id), &l->row);
}

static void ignore_event(void *arg, int64_t seq, json_t *event)
{
    (void)arg;
    (void)seq;
    (void)event;
}

static bool load_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    struct live *l = arg;
    turn_load_line(l->turn, line);
    projection_feed(l->projection, line, ignore_event, NULL);
    log_index_pass(l->log_path, LOG_BY_SEQ, &l->place, line);
    return true;
}

static err load(struct live *l)
{
    l->config = arena_new();
    TRY(db_read(l->m->o.db, find_row, l));
    TRY(json_read(str_of(l->row.agent_json), &l->agent));
    TRY(log_open(l->m->logs_dir, l->tenant, l->id, &l->log));
    AUTO_JSON environment = json_loads(l->row.environment_json, JSON_ALLOW_NUL, NULL);
    AUTO_JSON budget = l->row.budget_json ? json_loads(l->row.budget_json, 0, NULL) : NULL;
    const json_t *model = json_object_get(l->agent, "model");
    const char *provider = json_get_c(model, "provider"), *id = json_get_c(model, "id");
    l->turn = turn_new(&(struct turn_options){
        .tenant = l->tenant,
        .session = l->id,
        .random = random_bits,
        .price = price_of_usage,
        .price_arg = l,
        .budget = budget,
        .reserve = reserve,
        .settle = settle,
        .spend_arg = l,
        .provider = provider ? provider : "",
        .model = id ? id : "",
        .max_running_ms = json_get_int(environment, "maxDuration", 0) * 1000});
    const char *image = json_get_c(environment, "image");
    l->workdir_used = strcmp(l->row.sandbox_state, "none") != 0 || l->row.resources_json ||
                      (image && strcmp(image, "host") != 0);
    l->projection = l->place.projection = projection_new(l->id);
    l->log_path = log_path(l->m->logs_dir, l->tenant, l->id, l->config);
    l->stored_usage = l->row.usage;
    if (strcmp(l->row.sandbox_state, "stopped") == 0 ||
        strcmp(l->row.sandbox_state, "crashed") == 0)
        note_processes_gone(l);
    TRY(log_read(l->m->logs_dir, l->tenant, l->id, load_line, l));
    int64_t bad = projection_bad_lines(l->projection);
    if (bad > 0)
        log_warn("the log holds %lld unreadable line%s; the rest is used", (long long)bad,
                 bad == 1 ? "" : "s");
    return 0;
}

void live_free(struct live *l)
{
    CHECK(l, LIVE_MAGIC);
    effects_close_host(l);
    spend_drop(l->m->spend, l->tenant, &l->hold);
    turn_free(l->turn);
    log_close(l->log);
    projection_free(l->projection);
    json_decref(l->agent);
    arena_free(l->config);
    buf_done(&l->sealed);
    mem_free(l->sandbox_note);
    mem_free(l->owed_reason);
    while (l->head) {
        struct message *msg = l->head;
        l->head = msg->next;
        message_free(msg);
    }
    l->magic = 0;
    mem_free(l);
}

bool live_may_unload(const struct live *l, int64_t now_ms)
{
    CHECK(l, LIVE_MAGIC);
    if (l->ended)
        return true;
    return turn_is_quiet(l->turn) && now_ms >= l->quiet_since_ms + l->m->o.unload_ms;
}

int64_t live_next_wake(const struct live *l)
{
    CHECK(l, LIVE_MAGIC);
    int64_t deadline = turn_deadline_ms(l->turn);
    if (deadline >= 0 || !turn_is_quiet(l->turn))
        return deadline;
    return l->quiet_since_ms + l->m->o.unload_ms;
}

/* ---- steps ---- */

static struct outcome *step(struct run *r, const struct turn_input *in)
{
    struct outcome *o = arena_alloc(r->a, sizeof *o);
    turn_step(r->l->turn, in, r->a, &o->out);
    *r->tail = o;
    r->tail = &o->next;
    for (const struct turn_effect *e = o->out.effects; e; e = e->next) {
        if (e->kind != EFFECT_STATUS)
            continue;
        r->status = e->name;
        r->stop_reason = e->bytes.n ? e->bytes.p : NULL;
        r->idle_reached = r->idle_reached || strcmp(e->name, "idle") == 0;
        r->row_first = r->row_first || strcmp(e->name, "running") != 0;
    }
    return o;
}

struct inbox_read {
    struct run *r;
    struct inbox_item *items;
    size_t n;
};

static err read_inbox(struct db_conn *c, void *arg)
{
    struct inbox_read *i = arg;
    struct live *l = i->r->l;
    return inbox_pending(c, i->r->a, l->tenant, l->id, &i->items, &i->n);
}

static void take_inbox(struct run *r, int64_t now_ms)
{
    struct inbox_read i = {.r = r};
    if (db_read(r->l->m->o.db, read_inbox, &i)) {
        log_error("cannot read the inbox: %s", err_text());
        r->l->failed = true; /* still there: the next wake finds it */
        return;
    }
    r->inbox_full = i.n == INBOX_BATCH;
    for (size_t k = 0; k < i.n; k++) {
        json_t *event = NULL;
        r->inbox_up_to = i.items[k].position;
        if (json_read(i.items[k].event, &event)) {
            log_error("the inbox holds an event that is no JSON: %s", err_text());
            continue;
        }
        step(r, &(struct turn_input){.kind = TURN_POSTED, .now_ms = now_ms, .event = event});
        json_decref(event);
    }
}

/* An outcome without lines: only somebody to be answered. */
static struct outcome *bare_outcome(struct run *r, struct waiter *w)
{
    struct outcome *o = arena_alloc(r->a, sizeof *o);
    o->waiter = w;
    *r->tail = o;
    r->tail = &o->next;
    return o;
}

struct change_write {
    struct live *l;
    const json_t *change;
    const char *agent_json;
};

static err write_change(struct db_conn *c, void *arg)
{
    struct change_write *w = arg;
    return session_change_row(c, w->l->tenant, w->l->id, w->change, w->agent_json,
                              clock_wall_ms(w->l->m->o.clock));
}

/* The row first: it is what counts; the line tells who watches. */
static err change_session(struct run *r, const json_t *change)
{
    struct live *l = r->l;
    json_t *members = json_object_get(change, "agent");
    if (members && !turn_may_reopen(l->turn))
        return fail_as(E_CONFLICT, "session_not_idle",
                       "the session is running: interrupt it, or wait until it is idle");
    AUTO_JSON agent = json_deep_copy(l->agent);
    json_object_update(agent, members);
    struct change_write w = {.l = l, .change = change};
    if (members)
        w.agent_json = json_write_arena(agent, r->a).p;
    TRY(db_write(l->m->o.db, write_change, &w));
    if (members) { /* the next turn opens a host that has the new ones */
        json_decref(l->agent);
        l->agent = json_incref(agent);
        effects_close_host(l);
    }
    return 0;
}

static void handle_change(struct run *r, struct message *msg, struct turn_input *in)
{
    if (change_session(r, in->event)) {
        struct outcome *o = bare_outcome(r, msg->waiter);
        o->refused = arena_alloc(r->a, sizeof *o->refused);
        err_save(o->refused);
        return;
    }
    AUTO_JSON event = json_pack("{s:s}", "type", "session.updated");
    json_object_update_missing(event, (json_t *)in->event);
    in->kind = TURN_CHANGED;
    in->ok = json_object_get(in->event, "agent") != NULL;
    in->event = event;
    step(r, in)->waiter = msg->waiter;
}

static void handle(struct run *r, struct message *msg)
{
    struct live *l = r->l;
    int64_t now = clock_wall_ms(l->m->o.clock);
    struct turn_input in = msg->input;
    in.now_ms = now;
    switch (msg->kind) {
    case MESSAGE_WAKE:
        take_inbox(r, now);
        break;
    case MESSAGE_WITHDRAW: {
        take_inbox(r, now); /* it may still be in there */
        struct outcome *o = step(r, &in);
        o->waiter = msg->waiter;
        o->is_withdraw = true;
        break;
    }
    case MESSAGE_STOP_SANDBOX:
        if (turn_is_running(l->turn))
            break;
        tool_stop_sandbox(l);
        note_processes_gone(l);
        break;
    case MESSAGE_END:
        bare_outcome(r, msg->waiter);
        l->ended = true;
        break;
    case MESSAGE_OPEN:
        effects_open_host(l, in.bytes);
        break;
    case MESSAGE_CHANGE:
        handle_change(r, msg, &in);
        break;
    case MESSAGE_TICK:
        in.kind = TURN_TICK;
        step(r, &in);
        break;
    case MESSAGE_INPUT:
        step(r, &in);
        break;
    }
}

/* ---- after the steps ---- */

static void publish_event(void *arg, int64_t seq, json_t *event)
{
    struct live *l = arg;
    AUTO_BUF text = {0};
    json_write(event, &text);
    hub_publish(
        l->m->hub, l->id,
        &(struct hub_frame){.seq = seq, .type = json_get_c(event, "type"), .json = buf_str(&text)});
}

static void publish_line(struct live *l, struct str line)
{
    projection_feed(l->projection, line, publish_event, l);
    log_index_pass(l->log_path, LOG_BY_SEQ, &l->place, line);
}

struct row_write {
    struct run *r;
    bool usage_changed;
};

static err write_row(struct db_conn *c, void *arg)
{
    struct row_write *w = arg;
    struct live *l = w->r->l;
    int64_t now = clock_wall_ms(l->m->o.clock);
    struct session_update u = {.status = w->r->status,
                               .stop_reason_json = w->r->stop_reason,
                               .usage = w->usage_changed ? turn_usage(l->turn) : NULL,
                               .activity_ms = now};
    TRY(session_apply(c, l->tenant, l->id, &u, now));
    double usd = turn_usage(l->turn)->cost_usd - l->stored_usage.cost_usd;
    if (w->usage_changed && usd > 0) /* of the day it was spent in, however late this is written */
        TRY(spend_add(c, l->tenant, turn_spent_at_ms(l->turn), usd));
    return w->r->inbox_up_to ? inbox_remove(c, l->tenant, l->id, w->r->inbox_up_to) : 0;
}

static void owe_status(struct live *l, const char *status, const char *reason)
{
    char *copy = reason ? mem_strdup(reason) : NULL;
    mem_free(l->owed_reason);
    l->owed_status = status;
    l->owed_reason = copy;
}

/* The row follows the log. If the database refuses, the log still stands: the next run, or the next
 * load, repairs the row. */
static void bring_row_up_to_date(struct run *r)
{
    struct live *l = r->l;
    struct row_write w = {.r = r};
    w.usage_changed = memcmp(&l->stored_usage, turn_usage(l->turn), sizeof l->stored_usage) != 0;
    if (!r->status && l->owed_status) {
        r->status = l->owed_status;
        r->stop_reason = l->owed_reason;
    }
    if (!r->status && !w.usage_changed && !r->inbox_up_to)
        return;
    if (db_write(l->m->o.db, write_row, &w)) {
        log_error("cannot bring the session's row up to date: %s", err_text());
        l->failed = true;
        owe_status(l, r->status, r->stop_reason);
        r->stop_reason = l->owed_reason; /* what it was may be gone */
        return;
    }
    owe_status(l, NULL, NULL);
    l->stored_usage = *turn_usage(l->turn);
    spend_recorded(l->m->spend, l->tenant, &l->hold);
    r->status = r->stop_reason = NULL;
    r->inbox_up_to = 0;
}

static void answer(struct outcome *o, err e)
{
    struct waiter *w = o->waiter;
    if (w == NULL)
        return;
    if (!e && o->refused)
        e = err_restore(o->refused);
    else if (!e && o->is_withdraw && o->out.withdraw_unknown)
        e = fail_as(E_NOT_FOUND, "event_not_found", "the session has no such event");
    else if (!e && o->is_withdraw && !o->out.withdrawn)
        e = fail_as(E_CONFLICT, "already_processed", "the event was processed already");
    waiter_answer(w, e);
}

static void commit(struct run *r)
{
    struct live *l = r->l;
    size_t lines = 0;
    for (const struct outcome *o = r->first; o; o = o->next) {
        for (size_t i = 0; i < o->out.line_count; i++)
            log_append(l->log, o->out.lines[i]);
        lines += o->out.line_count;
    }
    err e = log_sync(l->log);
    if (e) {
        log_error("the session stops: %s", err_text());
        l->ended = l->failed =
            true; /* nothing leaves that is not on disk; the next wake loads it */
    } else if (r->row_first) {
        bring_row_up_to_date(r);
    }
    for (struct outcome *o = r->first; o; o = o->next) {
        for (size_t i = 0; !e && i < o->out.line_count; i++)
            publish_line(l, o->out.lines[i]);
        for (const struct turn_effect *f = o->out.effects; !e && f; f = f->next)
            effects_perform(l, f, r->a);
        answer(o, e);
    }
    if (e)
        return;
    bring_row_up_to_date(r);
    if (lines > 0)
        archive_note(l->m->o.archive, l->tenant, l->id, log_durable_bytes(l->log), r->idle_reached);
}

static void refuse(struct message *batch)
{
    struct err_slot why;
    err_save(&why);
    while (batch) {
        struct message *msg = batch;
        batch = msg->next;
        struct outcome o = {.waiter = msg->waiter};
        err_restore(&why);
        answer(&o, msg->kind == MESSAGE_END ? 0 : why.e); /* gone already is what END wants */
        message_free(msg);
    }
}

void live_run(struct live *l, struct message *batch)
{
    CHECK(l, LIVE_MAGIC);
    AUTO_ARENA a = arena_new();
    struct run r = {.l = l, .a = a};
    r.tail = &r.first;
    bool loading = l->turn == NULL;
    if (loading && load(l)) {
        l->ended = true;
        if (err_code() && strcmp(err_code(), "session_not_found") != 0) {
            log_error("cannot load the session: %s", err_text());
            l->failed = true;
        }
        refuse(batch);
        return;
    }
    int64_t now = clock_wall_ms(l->m->o.clock);
    if (loading && turn_needs_recovery(l->turn))
        step(&r, &(struct turn_input){.kind = TURN_RECOVER, .now_ms = now});
    else if (loading && strcmp(l->row.status, "idle") != 0)
        r.status = "idle"; /* the database refused when the turn ended: the log is right */
    while (batch) {
        struct message *msg = batch;
        batch = msg->next;
        if (!l->ended || msg->waiter)
            handle(&r, msg);
        message_free(msg);
    }
    commit(&r);
    if (r.inbox_full && r.inbox_up_to == 0) /* what was read is removed: go on with the rest */
        session_wake(l->m, l->tenant, l->id);
    l->quiet_since_ms = clock_wall_ms(l->m->o.clock);
}

/* Entries for running sandboxes over the parent's verbs. */
#include "session/sandboxes.h"

#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "images/name.h"
#include "sandbox/packages.h"
#include "session/images.h"
#include "session/staging.h"
#include "session/store.h"
#include "session/volume_rows.h"

#include <stdio.h>

#define STOP_GRACE_MS 1000

/* One sandbox that is, or is being, used. Its lock is held over a verb: a start waits for a stop
 * under way. */
struct entry {
    struct entry *next;
    unsigned users; /* guarded by the table's lock; freed at 0 when not running */
    char session[ID_MAX], tenant[ID_MAX];
    pthread_mutex_t verb_lock; /* guards what follows */
    bool running;
    char socket[SOCKET_PATH_MAX];
    char image[SANDBOX_IMAGE_MAX]; /* that it was last started from; "" before */
};

struct sandboxes {
    struct parent_link *parent;
    struct db *db;
    struct objects *objects;
    const struct clock *clock;
    struct samples *samples;
    struct images *images;
    pthread_mutex_t table_lock; /* guards entries and their `users` */
    struct entry *entries;
};

struct sandboxes *sandboxes_new(struct parent_link *parent, struct db *db, struct objects *objects,
                                const struct clock *clock)
{
    struct sandboxes *s = mem_alloc(sizeof *s);
    s->parent = parent;
    s->db = db;
    s->objects = objects;
    s->clock = clock;
    s->samples = samples_new();
    s->images = images_new(parent, clock);
    pthread_mutex_init(&s->table_lock, NULL);
    return s;
}

static struct entry *take_entry(struct sandboxes *s, const char *tenant, const char *session)
{
    AUTO_LOCK(&s->table_lock);
    struct entry *e = s->entries;
    while (e && strcmp(e->session, session) != 0)
        e = e->next;
    if (e == NULL) {
        e = mem_alloc(sizeof *e);
        snprintf(e->session, sizeof e->session, "%s", session);
        snprintf(e->tenant, sizeof e->tenant, "%s", tenant);
        pthread_mutex_init(&e->verb_lock, NULL);
        e->next = s->entries;
        s->entries = e;
    }
    e->users++;
    return e;
}

static void drop_entry(struct sandboxes *s, struct entry *e)
{
    AUTO_LOCK(&s->table_lock);
    if (--e->users > 0 || e->running)
        return;
    struct entry **at = &s->entries;
    while (*at != e)
        at = &(*at)->next;
    *at = e->next;
    pthread_mutex_destroy(&e->verb_lock);
    mem_free(e);
}

static void fill_spec(struct sandbox_spec *spec, const char *tenant, const char *session,
                      const char *environment_json)
{
    AUTO_JSON environment =
        environment_json ? json_loads(environment_json, JSON_ALLOW_NUL, NULL) : NULL;
    const json_t *resources = json_object_get(environment, "resources");
    const char *image = json_get_c(environment, "image");
    *spec = (struct sandbox_spec){
        .cpu_milli = (uint32_t)(json_get_real(resources, "cpus", 0) * 1000),
        .memory_mib = (uint32_t)json_get_int(resources, "memoryMiB", 0),
        .pids = (uint32_t)json_get_int(resources, "pids", 0),
        .disk_mib = (uint32_t)json_get_int(resources, "diskMiB", 0),
    };
    snprintf(spec->id, sizeof spec->id, "%s", session);
    snprintf(spec->tenant, sizeof spec->tenant, "%s", tenant);
    snprintf(spec->image, sizeof spec->image, "%s", image ? image : "host");
}

/* Of a start: what is there without being started mounts nothing. */
static err fill_mounts(struct sandbox_spec *spec, const char *environment_json)
{
    AUTO_JSON environment = json_loads(environment_json, JSON_ALLOW_NUL, NULL);
    return mounts_read(json_object_get(environment, "mounts"), spec->mounts, &spec->mount_count);
}

struct row_update {
    const char *tenant, *session, *state;
    int64_t now_ms;
};

static err write_state(struct db_conn *c, void *arg)
{
    struct row_update *u = arg;
    struct session_update update = {.sandbox_state = u->state};
    return session_apply(c, u->tenant, u->session, &update, u->now_ms);
}

static err record_state(struct sandboxes *s, const char *tenant, const char *session,
                        const char *state)
{
    struct row_update u = {tenant, session, state, clock_wall_ms(s->clock)};
    return db_write(s->db, write_state, &u);
}

struct existence {
    const char *id;
    bool exists;
};

static err look_up(struct db_conn *c, void *arg)
{
    struct existence *x = arg;
    return session_exists(c, x->id, &x->exists);
}

/* What the sandbox is made from: a name of the store. One that was made already stays with its
   image, whatever became of the names since. Without the entry's lock, as it may take minutes. */
static err choose_image(struct sandboxes *s, const char *environment_json,
                        struct sandbox_spec *spec)
{
    AUTO_JSON environment = json_loads(environment_json, JSON_ALLOW_NUL, NULL);
    AUTO_BUF packages = {0};
    struct sandbox_status made;
    TRY(packages_canonical(json_object_get(environment, "packages"), &packages));
    if (packages.n == 0 && image_name_check(spec->image) != E_FORBIDDEN)
        return 0;
    TRY(sandboxes_measure(s, spec->id, &made));
    if (made.state == SANDBOX_NONE || made.image[0] == 0)
        return images_prepare(s->images, spec->tenant, spec->image, buf_str(&packages).p,
                              spec->image);
    memcpy(spec->image, made.image, sizeof spec->image);
    return 0;
}

static err boot(struct sandboxes *s, struct entry *e, const struct sandbox_spec *wanted)
{
    const struct sandbox_spec spec = *wanted;
    struct parent_message m = {.verb = PARENT_SANDBOX_CREATE};
    m.sandbox.spec = spec;
    TRY(parent_call(s->parent, &m, NULL));
    m = (struct parent_message){.verb = PARENT_SANDBOX_START};
    m.sandbox.spec = spec;
    TRY(parent_call(s->parent, &m, NULL));
    snprintf(e->socket, sizeof e->socket, "%s", m.sandbox.socket);
    memcpy(e->image, spec.image, sizeof e->image);
    e->running = true;
    return 0;
}

struct reservation {
    const struct entry *e;
    const struct sandbox_spec *wanted; /* with volumes by name */
    struct sandbox_spec spec;          /* … by id */
    int64_t now_ms;
    char before[SANDBOX_STATE_MAX];
};

static err reserve(struct db_conn *c, void *arg)
{
    struct reservation *r = arg;
    TRY(session_reserve_sandbox(c, r->e->tenant, r->e->session, r->now_ms, r->before));
    return volume_rows_attach(c, r->e->session, r->wanted, r->now_ms, &r->spec);
}

/* A deletion is committed before its sandbox is destroyed under the same lock: a start that comes
 * later must not make it anew. */
static err end_locked(struct sandboxes *s, struct entry *e, enum parent_verb verb)
{
    struct parent_message m = {.verb = verb};
    fill_spec(&m.sandbox.spec, e->tenant, e->session, NULL);
    m.sandbox.grace_ms = STOP_GRACE_MS;
    TRY(parent_call(s->parent, &m, NULL));
    e->running = false;
    return 0;
}

struct row_look {
    const struct entry *e;
    struct arena *a;
    struct session_row row;
};

static err find_row(struct db_conn *c, void *arg)
{
    struct row_look *x = arg;
    return session_find(c, x->a, x->e->tenant, str_of(x->e->session), &x->row);
}

/* A sandbox without the files it was promised is none: it is stopped again. */
static err stage_resources(struct sandboxes *s, struct entry *e)
{
    AUTO_ARENA a = arena_new();
    struct row_look x = {.e = e, .a = a};
    TRY(db_read(s->db, find_row, &x));
    if (x.row.resources_json == NULL)
        return 0;
    err failed = staging_run(s->objects, e->socket, x.row.resources_json);
    struct err_slot why;
    err_save(&why);
    if (failed && end_locked(s, e, PARENT_SANDBOX_STOP))
        log_warn("the sandbox of %s cannot be stopped: %s", e->session, err_text());
    return failed ? err_restore(&why) : 0;
}

static err start_locked(struct sandboxes *s, struct entry *e, const struct sandbox_spec *spec)
{
    struct reservation r = {.e = e, .wanted = spec, .now_ms = clock_wall_ms(s->clock)};
    struct err_slot why;
    TRY(db_write(s->db, reserve, &r));
    err failed = boot(s, e, &r.spec);
    if (!failed)
        failed = stage_resources(s, e);
    if (!failed)
        return 0;
    err_save(&why);
    if (record_state(s, e->tenant, e->session, r.before))
        log_warn("the sandbox of %s did not start, but its row says so: %s", e->session,
                 err_text());
    return err_restore(&why);
}

/* Once started here, what it was made from is known: stopped by whomever meanwhile or not. */
static bool knows_image(struct entry *e, struct sandbox_spec *spec)
{
    AUTO_LOCK(&e->verb_lock);
    if (e->image[0])
        memcpy(spec->image, e->image, sizeof spec->image);
    return e->image[0] != 0;
}

static err start_entry(struct sandboxes *s, struct entry *e, const struct sandbox_spec *spec,
                       char out_socket[SOCKET_PATH_MAX], bool *out_fresh)
{
    AUTO_LOCK(&e->verb_lock);
    bool fresh = !e->running;
    if (fresh)
        TRY(start_locked(s, e, spec));
    memcpy(out_socket, e->socket, sizeof e->socket);
    *out_fresh = fresh;
    return 0;
}

err sandboxes_start(struct sandboxes *s, const char *tenant, const char *session,
                    const char *environment_json, char out_socket[SOCKET_PATH_MAX], bool *out_fresh)
{
    struct entry *e = take_entry(s, tenant, session);
    struct sandbox_spec spec;
    fill_spec(&spec, tenant, session, environment_json);
    err failed = fill_mounts(&spec, environment_json);
    if (!failed && !knows_image(e, &spec))
        failed = choose_image(s, environment_json, &spec);
    if (!failed)
        failed = start_entry(s, e, &spec, out_socket, out_fresh);
    if (failed) /* else the caller's use keeps it, until sandboxes_release */
        drop_entry(s, e);
    return failed;
}

err sandboxes_fork(struct sandboxes *s, const char *tenant, const char *from, const char *session,
                   const char *environment_json, bool *out_live)
{
    struct parent_message m = {.verb = PARENT_SANDBOX_FORK};
    fill_spec(&m.sandbox.spec, tenant, session, environment_json);
    m.sandbox.spec.image[0] = 0; /* whatever that one lies on */
    snprintf(m.sandbox.from, sizeof m.sandbox.from, "%s", from);
    struct entry *e = take_entry(s, tenant, session);
    err failed = parent_call(s->parent, &m, NULL);
    if (failed) {
        drop_entry(s, e);
        return failed;
    }
    *out_live = m.sandbox.live;
    return 0;
}

err sandboxes_fit(struct sandboxes *s, const char *environment_json)
{
    struct parent_message m = {.verb = PARENT_SANDBOX_FITS};
    fill_spec(&m.sandbox.spec, "", "", environment_json);
    return parent_call(s->parent, &m, NULL);
}

void sandboxes_release(struct sandboxes *s, const char *session)
{
    struct entry *e = take_entry(s, "", session);
    drop_entry(s, e);
    drop_entry(s, e);
}

void sandboxes_forget(struct sandboxes *s, const char *session)
{
    struct entry *e = take_entry(s, "", session);
    pthread_mutex_lock(&e->verb_lock);
    e->running = false;
    pthread_mutex_unlock(&e->verb_lock);
    drop_entry(s, e);
}

static bool is_used(struct sandboxes *s, const struct entry *e)
{
    AUTO_LOCK(&s->table_lock);
    return e->users > 1; /* the caller is one */
}

err sandboxes_stop(struct sandboxes *s, const char *tenant, const char *session)
{
    struct entry *e = take_entry(s, tenant, session);
    pthread_mutex_lock(&e->verb_lock);
    bool used = is_used(s, e); /* a turn began meanwhile */
    err failed = used ? 0 : end_locked(s, e, PARENT_SANDBOX_STOP);
    if (!used && !failed)
        failed = record_state(s, tenant, session, "stopped");
    pthread_mutex_unlock(&e->verb_lock);
    drop_entry(s, e);
    return failed;
}

err sandboxes_destroy(struct sandboxes *s, const char *tenant, const char *session)
{
    struct entry *e = take_entry(s, tenant, session);
    pthread_mutex_lock(&e->verb_lock);
    err failed = end_locked(s, e, PARENT_SANDBOX_DESTROY);
    if (!failed)
        samples_forget(s->samples, session);
    pthread_mutex_unlock(&e->verb_lock);
    drop_entry(s, e);
    return failed;
}

bool sandboxes_known(struct sandboxes *s, const char *session)
{
    AUTO_LOCK(&s->table_lock);
    const struct entry *e = s->entries;
    while (e && strcmp(e->session, session) != 0)
        e = e->next;
    return e != NULL;
}

size_t sandboxes_running(struct sandboxes *s)
{
    AUTO_LOCK(&s->table_lock);
    size_t n = 0;
    for (const struct entry *e = s->entries; e; e = e->next)
        n++;
    return n;
}

/* ---- measuring ---- */

err sandboxes_measure(struct sandboxes *s, const char *session, struct sandbox_status *out)
{
    struct parent_message m = {.verb = PARENT_SANDBOX_STATS};
    snprintf(m.sandbox.spec.id, sizeof m.sandbox.spec.id, "%s", session);
    TRY(parent_call(s->parent, &m, NULL));
    *out = m.status_of;
    samples_put(s->samples, out, clock_wall_ms(s->clock));
    return 0;
}

size_t sandboxes_samples(struct sandboxes *s, const char *tenant, struct sample **out)
{
    return samples_of(s->samples, tenant, out);
}

/* ---- reconciliation ---- */

static err says_running(struct db_conn *c, void *arg)
{
    struct row_update *u = arg;
    AUTO_ARENA a = arena_new();
    struct session_row row;
    TRY(session_find(c, a, u->tenant, str_of(u->session), &row));
    u->state = strcmp(row.sandbox_state, "running") == 0 ? "running" : NULL;
    return 0;
}

/* The row may be older than the sandbox: it came back from a copy. */
static err note_running(struct sandboxes *s, const char *tenant, const char *id)
{
    struct row_update u = {.tenant = tenant, .session = id};
    TRY(db_read(s->db, says_running, &u));
    return u.state ? 0 : record_state(s, tenant, id, "running");
}

/* Somebody is at work on it right now. */
static bool is_in_use(struct sandboxes *s, const char *session)
{
    AUTO_LOCK(&s->table_lock);
    for (const struct entry *e = s->entries; e; e = e->next)
        if (strcmp(e->session, session) == 0)
            return e->users > 0;
    return false;
}

/* Somebody made it by name, without a service: no row ever speaks of it. */
static bool is_personal_snapshot(const char *id, const struct sandbox_status *status)
{
    return id_valid(str_of(id), SANDBOX_SNAPSHOT_ID) &&
           str_starts(str_of(status->tenant), STR(SANDBOX_PERSONAL));
}

static err reconcile_one(struct sandboxes *s, const char *id)
{
    struct existence x = {.id = id};
    bool in_use = is_in_use(s, id); /* before the look: a fork's row comes before its use ends */
    TRY(db_read(s->db, look_up, &x));
    struct sandbox_status status;
    TRY(sandboxes_measure(s, id, &status));
    const char *tenant = status.tenant;
    if ((!x.exists && in_use) || is_personal_snapshot(id, &status))
        return 0;
    if (!x.exists) {
        log_info("destroying the sandbox %s: it has no session", id);
        return sandboxes_destroy(s, tenant, id);
    }
    if (tenant[0] == 0)
        return 0;
    if (status.state == SANDBOX_RUNNING)
        return note_running(s, tenant, id);
    sandboxes_forget(s, id);
    return record_state(s, tenant, id, status.state == SANDBOX_CRASHED ? "crashed" : "stopped");
}

struct claims { /* rows that say their sandbox runs */
    struct arena *a;
    struct session_ref *refs;
    size_t n;
};

static err find_claims(struct db_conn *c, void *arg)
{
    struct claims *k = arg;
    return sessions_with_sandbox(c, k->a, &k->refs, &k->n);
}

static void drop_claim(struct claims *k, const char *session)
{
    for (size_t i = 0; i < k->n; i++) {
        if (strcmp(k->refs[i].id, session) == 0)
            k->refs[i].id[0] = 0;
    }
}

/* Those that no sandbox answers for: they would count against the tenant's limit for ever. */
static void correct_claims(struct sandboxes *s, const struct claims *k)
{
    for (size_t i = 0; i < k->n; i++) {
        const struct session_ref *ref = &k->refs[i];
        if (ref->id[0] && !sandboxes_known(s, ref->id) &&
            record_state(s, ref->tenant, ref->id, "none"))
            log_warn("cannot correct the row of %s: %s", ref->id, err_text());
    }
}

/* ID_MAX bytes each. All before the first is destroyed: they are asked for by their place. */
static err list_ids(struct sandboxes *s, struct buf *out)
{
    for (uint32_t from = 0;; from++) {
        struct parent_message m = {.verb = PARENT_SANDBOX_LIST};
        m.list.from = from;
        TRY(parent_call(s->parent, &m, NULL));
        if (m.list.item.id[0] == 0)
            return 0;
        buf_add(out, m.list.item.id, ID_MAX);
    }
}

err sandboxes_reconcile(struct sandboxes *s)
{
    AUTO_ARENA a = arena_new();
    struct claims claims = {.a = a};
    int64_t began_ms = clock_wall_ms(s->clock);
    TRY(db_read(s->db, find_claims, &claims)); /* before the list: a start comes after its claim */
    AUTO_BUF ids = {0};
    TRY(list_ids(s, &ids));
    for (size_t at = 0; at < ids.n; at += ID_MAX) {
        const char *id = ids.p + at;
        drop_claim(&claims, id);
        err e = reconcile_one(s, id);
        if (e) /* one stubborn sandbox must not hide the others; it is tried again next time */
            log_warn("cannot reconcile the sandbox %s: %s", id, err_text());
    }
    correct_claims(s, &claims);
    samples_forget_before(s->samples, began_ms);
    return 0;
}

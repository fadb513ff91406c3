#include "api/file_outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/copies.h"
#include "api/file_record.h"
#include "api/file_rows.h"
#include "api/file_upload.h"
#include "api/mime.h"
#include "api/service.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"

#define OUTPUTS "/mnt/session/outputs" /* hands/frames.h */
#define OUTPUTS_MAX 10000              /* kept as files; the first ones in the order of paths */
#define FETCH_MAX 1000                 /* copied by one request; the next one goes on */
#define LOOK_MAX 200000                /* entries looked at, to say how many are left out */
#define CHANGED_AT_MAX 64
#define TURN_WAIT_MS 60000 /* for another request that copies the same session's */

struct output {
    const char *path;
    char changed_at[CHANGED_AT_MAX];
    bool known; /* there is a file of it, and it did not change */
};

struct refresh {
    struct ctx *ctx;
    struct session_row session;
    struct copies *copies;
    struct output *outputs;
    size_t count;
    struct file_row *files; /* of before */
    size_t file_count;
    struct file_outputs_rest rest;
};

/* ---- what is there ---- */

static err see_entry(void *arg, const struct copyout_entry *entry)
{
    struct refresh *r = arg;
    if (entry->now.type != COPYOUT_FILE)
        return 0;
    if (!entry->utf8 || r->count == OUTPUTS_MAX) {
        r->rest.left_out++;
        return 0;
    }
    struct output *o = &r->outputs[r->count++];
    o->path = arena_str(r->ctx->arena, entry->path).p;
    snprintf(o->changed_at, sizeof o->changed_at, "%lld:%llu", (long long)entry->now.ctime_ns,
             (unsigned long long)entry->now.size);
    return 0;
}

static err entry_over(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    (void)arg;
    (void)now;
    (void)before;
    return 0;
}

static int compare_outputs(const void *a, const void *b)
{
    return strcmp(((const struct output *)a)->path, ((const struct output *)b)->path);
}

static err look(struct refresh *r)
{
    struct copyout_summary summary;
    struct copyout_request request = {.root = OUTPUTS, .files_only = true, .entries = LOOK_MAX};
    struct copyout_sink sink = {.begin = see_entry, .end = entry_over, .arg = r};
    r->outputs = arena_alloc(r->ctx->arena, OUTPUTS_MAX * sizeof *r->outputs);
    TRY(copies_run(r->copies, &request, &sink, &summary));
    r->rest.left_out += summary.left_out + summary.truncated;
    qsort(r->outputs, r->count, sizeof *r->outputs, compare_outputs);
    return 0;
}

static err read_known(struct db_conn *c, void *arg)
{
    struct refresh *r = arg;
    struct file_filter filter = {.session = r->session.id, .limit = 2 * OUTPUTS_MAX};
    return file_list(c, r->ctx->arena, r->ctx->tenant, &filter, &r->files, &r->file_count);
}

/* ---- what is new ---- */

struct fetch {
    struct refresh *r;
    struct output *output;
    struct file_row row;
    struct object_put *put;
    enum copyout_trouble trouble;
};

static err begin_row(struct db_conn *c, void *arg)
{
    struct fetch *f = arg;
    return file_begin(c, f->r->ctx->tenant, f->row.id, f->row.created_at_ms);
}

static err finish_row(struct db_conn *c, void *arg)
{
    struct fetch *f = arg;
    return file_finish(c, f->r->ctx->tenant, &f->row);
}

static err begin_content(void *arg, const struct copyout_entry *entry)
{
    struct fetch *f = arg;
    char key[OBJECT_KEY_MAX];
    if (entry->now.type != COPYOUT_FILE || f->put)
        return 0;
    file_key(f->r->ctx->tenant, f->row.id, key);
    return objects_put_begin(f->r->ctx->service->objects, key, &f->put);
}

static err take_content(void *arg, enum copyout_side side, struct str bytes)
{
    struct fetch *f = arg;
    return side == COPYOUT_NOW && f->put ? objects_put_write(f->put, bytes) : 0;
}

static err content_over(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    (void)before;
    ((struct fetch *)arg)->trouble = now;
    return 0;
}

static err copy_content(struct fetch *f)
{
    struct copyout_summary summary;
    struct copyout_request request = {
        .root = OUTPUTS, .only = f->output->path, .contents = true, .files_only = true};
    struct copyout_sink sink = {
        .begin = begin_content, .content = take_content, .end = content_over, .arg = f};
    return copies_run(f->r->copies, &request, &sink, &summary);
}

/* The object and its row. What went away, or moved while it was read, is left for the next time. */
static err keep(struct fetch *f)
{
    struct object_info info;
    struct object_put *put = f->put;
    f->put = NULL;
    if (put == NULL || f->trouble != COPYOUT_FINE) {
        objects_put_abort(put);
        return 0;
    }
    TRY(objects_put_end(put, &info));
    memcpy(f->row.sha256, info.sha256, sizeof f->row.sha256);
    f->row.size = (int64_t)info.size;
    err e = file_record_put(f->r->ctx->service->objects, f->r->ctx->tenant, &f->row);
    e = e ? e : db_write(f->r->ctx->service->db, finish_row, f);
    if (e) {
        struct err_slot why;
        char key[OBJECT_KEY_MAX];
        err_save(&why);
        file_key(f->r->ctx->tenant, f->row.id, key);
        if (objects_delete(f->r->ctx->service->objects, key)) /* else its row is swept with it */
            log_warn("the object of %s stays for now: %s", f->row.id, err_text());
        return err_restore(&why);
    }
    return 0;
}

static err fetch_one(struct refresh *r, struct output *o)
{
    int64_t now = clock_wall_ms(r->ctx->clock);
    struct fetch f = {.r = r,
                      .output = o,
                      .row = {.name = file_name_clean(r->ctx->arena, str_of(o->path)),
                              .metadata_json = "{}",
                              .session = r->session.id,
                              .path = o->path,
                              .changed_at = o->changed_at,
                              .created_at_ms = now}};
    id_new("file", now, f.row.id);
    f.row.mime_type = mime_of_name(f.row.name);
    TRY(db_write(r->ctx->service->db, begin_row, &f));
    err e = copy_content(&f);
    if (e) {
        objects_put_abort(f.put);
        return e;
    }
    return keep(&f);
}

/* ---- what is gone ---- */

struct gone {
    const char *tenant, *id;
};

static err hide(struct db_conn *c, void *arg)
{
    const struct gone *g = arg;
    err e = file_hide(c, g->tenant, str_of(g->id));
    return e == E_NOT_FOUND ? 0 : e; /* deleted meanwhile */
}

/* NULL: it is not there any more. */
static struct output *output_of(const struct refresh *r, const struct file_row *file)
{
    struct output key = {.path = file->path};
    return r->count ? bsearch(&key, r->outputs, r->count, sizeof key, compare_outputs) : NULL;
}

static err hide_gone(struct refresh *r)
{
    for (size_t i = 0; i < r->file_count; i++) {
        struct gone g = {r->ctx->tenant, r->files[i].id};
        if (output_of(r, &r->files[i]) == NULL)
            TRY(db_write(r->ctx->service->db, hide, &g));
    }
    return 0;
}

static void mark_known(struct refresh *r)
{
    for (size_t i = 0; i < r->file_count; i++) {
        const struct file_row *file = &r->files[i];
        struct output *o = output_of(r, file);
        if (o && file->changed_at && strcmp(o->changed_at, file->changed_at) == 0)
            o->known = true;
    }
}

/* What is more than one request can copy waits for the next one. */
static err fetch_new(struct refresh *r)
{
    size_t fetched = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (r->outputs[i].known)
            continue;
        if (fetched++ < FETCH_MAX)
            TRY(fetch_one(r, &r->outputs[i]));
        else
            r->rest.waiting++;
    }
    return 0;
}

static err bring_up_to_date(struct refresh *r)
{
    TRY(look(r));
    TRY(db_read(r->ctx->service->db, read_known, r));
    mark_known(r);
    TRY(fetch_new(r));
    return hide_gone(r);
}

struct find {
    struct ctx *ctx;
    struct str id;
    struct session_row *row;
};

static err find_session(struct db_conn *c, void *arg)
{
    struct find *f = arg;
    return session_find(c, f->ctx->arena, f->ctx->tenant, f->id, f->row);
}

/* ---- one at a time ---- */

/* Two that copied the same outputs would each hide the files of the other, whose ids somebody may
   have been told. */
struct turn {
    struct turn *next;
    const char *session;
};
static pthread_mutex_t turns_lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t turn_over;
static struct turn *turns;

static void make_turn_over(void)
{
    cond_init(&turn_over);
}

static bool is_taken(const char *session)
{
    const struct turn *t = turns;
    while (t && strcmp(t->session, session) != 0)
        t = t->next;
    return t != NULL;
}

static err take_turn(struct turn *own)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_turn_over);
    int64_t until_ms = clock_monotonic_ms(clock_real()) + TURN_WAIT_MS;
    AUTO_LOCK(&turns_lock);
    while (is_taken(own->session)) {
        int64_t left_ms = until_ms - clock_monotonic_ms(clock_real());
        if (left_ms <= 0)
            return fail(E_UNAVAILABLE,
                        "the session's outputs are being copied for another request: try again");
        cond_wait_ms(&turn_over, &turns_lock, left_ms); /* for the copy that another one makes */
    }
    own->next = turns;
    turns = own;
    return 0;
}

static void end_turn(const struct turn *own)
{
    AUTO_LOCK(&turns_lock);
    struct turn **at = &turns;
    while (*at != own)
        at = &(*at)->next;
    *at = own->next;
    pthread_cond_broadcast(&turn_over);
}

static err copy_outputs(struct refresh *r)
{
    struct turn own = {.session = r->session.id};
    r->copies = copies_new(r->ctx, &r->session);
    err e = copies_exist(r->copies) ? take_turn(&own) : 0;
    if (!e && copies_exist(r->copies)) {
        e = bring_up_to_date(r);
        end_turn(&own);
    }
    copies_free(r->copies);
    return e;
}

err file_outputs_refresh(struct ctx *ctx, struct str session, struct file_outputs_rest *out)
{
    struct refresh r = {.ctx = ctx};
    struct find f = {ctx, session, &r.session};
    TRY(db_read(ctx->service->db, find_session, &f));
    if (strcmp(r.session.status, "idle") != 0)
        return fail_as(E_CONFLICT, "session_not_idle",
                       "the session works: its outputs are files once it is idle");
    err e = copy_outputs(&r);
    *out = r.rest;
    return e;
}

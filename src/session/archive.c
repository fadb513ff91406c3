/* Which sessions wait to be copied, and the thread that sees to it. Copying one is archive_copy.c,
   bringing back archive_recover.c. */
#include "session/archive.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "session/archive_inside.h"
#include "session/backup.h"
#include "session/log.h"

#define RUNNING_MS 30000
#define RETRY_MS 5000
#define BACKUP_MS 60000
#define BACKUP_SHARE 50 /* a copy that took a second is made every 50 s at most */

struct archive *archive_new(const struct archive_options *o)
{
    struct archive *a = mem_alloc(sizeof *a);
    a->magic = ARCHIVE_MAGIC;
    a->o = *o;
    a->o.running_ms = o->running_ms ? o->running_ms : RUNNING_MS;
    a->o.logs_dir = mem_strdup(o->logs_dir);
    a->o.scratch_dir = mem_strdup(o->scratch_dir);
    a->last_backup = -1;
    pthread_mutex_init(&a->waiting_lock, NULL);
    cond_init(&a->changed);
    return a;
}

void archive_delete(struct archive *a)
{
    if (a == NULL)
        return;
    CHECK(a, ARCHIVE_MAGIC);
    for (size_t i = 0; i < ARCHIVE_BUCKETS; i++) {
        while (a->buckets[i]) {
            struct waiting *w = a->buckets[i];
            a->buckets[i] = w->next;
            mem_free(w);
        }
    }
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->waiting_lock);
    mem_free((char *)a->o.logs_dir);
    mem_free((char *)a->o.scratch_dir);
    a->magic = 0;
    mem_free(a);
}

/* ---- who waits ---- */

static int64_t now_ms(const struct archive *a)
{
    return clock_monotonic_ms(a->o.clock);
}

static struct waiting **find_waiting(struct archive *a, const char *session)
{
    struct waiting **at = &a->buckets[str_hash(str_of(session)) % ARCHIVE_BUCKETS];
    while (*at && strcmp((*at)->session, session) != 0)
        at = &(*at)->next;
    return at;
}

/* With waiting_lock held. */
static void put_waiting(struct archive *a, const char *tenant, const char *session, int64_t bytes,
                        int64_t due_ms)
{
    struct waiting **at = find_waiting(a, session), *w = *at;
    if (w == NULL) {
        w = *at = mem_alloc(sizeof *w);
        snprintf(w->tenant, sizeof w->tenant, "%s", tenant);
        snprintf(w->session, sizeof w->session, "%s", session);
        w->due_ms = due_ms;
    }
    w->bytes = bytes > w->bytes ? bytes : w->bytes;
    w->due_ms = due_ms < w->due_ms ? due_ms : w->due_ms;
    if (due_ms < a->next_ms) {
        a->next_ms = due_ms;
        pthread_cond_broadcast(&a->changed);
    }
}

void archive_note(struct archive *a, const char *tenant, const char *session, int64_t bytes,
                  bool idle)
{
    if (a == NULL)
        return;
    CHECK(a, ARCHIVE_MAGIC);
    int64_t now = now_ms(a);
    AUTO_LOCK(&a->waiting_lock);
    put_waiting(a, tenant, session, bytes, idle ? now : now + a->o.running_ms);
    if (idle)
        pthread_cond_broadcast(&a->changed);
}

/* The first that is due, taken out of the table; else *out_next says when one will be. With
   waiting_lock held. */
static bool take_due(struct archive *a, int64_t now, struct waiting *out)
{
    a->next_ms = INT64_MAX;
    for (size_t i = 0; i < ARCHIVE_BUCKETS; i++) {
        for (struct waiting **at = &a->buckets[i]; *at; at = &(*at)->next) {
            struct waiting *w = *at;
            if (w->due_ms <= now || a->stopping) {
                *out = *w;
                *at = w->next;
                mem_free(w);
                a->next_ms = now; /* there may be more */
                memcpy(a->copying, out->session, sizeof a->copying);
                return true;
            }
            a->next_ms = w->due_ms < a->next_ms ? w->due_ms : a->next_ms;
        }
    }
    return false;
}

/* ---- logs that a previous process did not copy ---- */

static void note_uncopied(struct archive *a, const char *tenant, const char *session)
{
    int64_t bytes = 0, stored = 0;
    if (archive_log_bytes(a, tenant, session, &bytes) ||
        archive_stored_bytes(a, tenant, session, &stored)) {
        log_warn("cannot compare %s with its copy: %s", session, err_text());
        return;
    }
    if (bytes == stored)
        return;
    AUTO_LOCK(&a->waiting_lock);
    put_waiting(a, tenant, session, bytes, now_ms(a));
}

static void find_uncopied_of(struct archive *a, const char *tenant)
{
    AUTO_ARENA arena = arena_new();
    DIR *d = opendir(arena_printf(arena, "%s/%s", a->o.logs_dir, tenant));
    for (struct dirent *e; d && (e = readdir(d));) {
        struct str name = str_of(e->d_name), end = STR(".jsonl");
        char session[ID_MAX];
        if (!str_ends(name, end) || name.n - end.n >= sizeof session)
            continue;
        snprintf(session, sizeof session, "%.*s", (int)(name.n - end.n), name.p);
        if (id_valid(str_of(session), "sess"))
            note_uncopied(a, tenant, session);
    }
    if (d)
        closedir(d);
}

static void find_uncopied(struct archive *a)
{
    DIR *d = opendir(a->o.logs_dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (id_valid(str_of(e->d_name), "tenant"))
            find_uncopied_of(a, e->d_name);
    if (d)
        closedir(d);
}

/* ---- the thread ---- */

static void copied(struct archive *a, const struct waiting *w, err e)
{
    if (e == E_NOT_FOUND) /* deleted meanwhile */
        e = 0;
    if (e && !a->failing)
        log_warn("the object store refuses the copy of %s: %s; trying again", w->session,
                 err_text());
    if (!e && a->failing)
        log_info("the object store takes copies again");
    a->failing = e != 0;
    AUTO_LOCK(&a->waiting_lock);
    a->copying[0] = 0;
    pthread_cond_broadcast(&a->changed);
    if (e && !a->stopping)
        put_waiting(a, w->tenant, w->session, w->bytes, now_ms(a) + RETRY_MS);
}

static void take_backup(struct archive *a)
{
    struct db_stats stats;
    db_get_stats(a->o.db, &stats);
    int64_t began = now_ms(a);
    a->backup_due_ms = began + BACKUP_MS;
    if (stats.writes == a->last_backup)
        return;
    err e = backup_take(a->o.db, a->o.objects, a->o.scratch_dir);
    if (e)
        log_warn("the database was not copied to the object store: %s", err_text());
    else
        a->last_backup = stats.writes;
    int64_t took = now_ms(a) - began;
    a->backup_due_ms = began + (took * BACKUP_SHARE > BACKUP_MS ? took * BACKUP_SHARE : BACKUP_MS);
    AUTO_LOCK(&a->waiting_lock);
    pthread_cond_broadcast(&a->changed);
}

/* Something to copy, or time for a backup: true. False: stopping, and nothing waits. */
static bool wait_for_work(struct archive *a, struct waiting *out, bool *out_found)
{
    AUTO_LOCK(&a->waiting_lock);
    for (;;) {
        int64_t now = now_ms(a);
        *out_found = take_due(a, now, out);
        if (*out_found || (a->backup_due_ms <= now && !a->stopping))
            return true;
        if (a->stopping)
            return false;
        int64_t next = a->next_ms < a->backup_due_ms ? a->next_ms : a->backup_due_ms;
        cond_wait_ms(&a->changed, &a->waiting_lock,
                     next - now); /* a session, the backup, the end */
    }
}

static bool out_of_grace(struct archive *a)
{
    AUTO_LOCK(&a->waiting_lock);
    return a->stopping && now_ms(a) >= a->stop_by_ms;
}

static void *run(void *arg)
{
    struct archive *a = arg;
    struct waiting w;
    bool found;
    find_uncopied(a);
    while (wait_for_work(a, &w, &found) && !out_of_grace(a)) {
        if (found)
            copied(a, &w, archive_copy(a, &w));
        else
            take_backup(a);
    }
    if (!out_of_grace(a))
        take_backup(a);
    return NULL;
}

void archive_start(struct archive *a)
{
    CHECK(a, ARCHIVE_MAGIC);
    a->started = true;
    a->thread = thread_start("archive", run, a);
}

void archive_stop(struct archive *a, int64_t grace_ms)
{
    CHECK(a, ARCHIVE_MAGIC);
    if (!a->started)
        return;
    pthread_mutex_lock(&a->waiting_lock);
    a->stopping = true;
    a->stop_by_ms = now_ms(a) + grace_ms;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->waiting_lock);
    pthread_join(a->thread, NULL);
    a->started = false;
}

/* ---- purging ---- */

/* From here on nobody copies it: it has ended, so nobody notes it either. */
static void forget(struct archive *a, const char *session)
{
    AUTO_LOCK(&a->waiting_lock);
    struct waiting **at = find_waiting(a, session), *w = *at;
    if (w) {
        *at = w->next;
        mem_free(w);
    }
    while (strcmp(a->copying, session) == 0)
        cond_wait_ms(&a->changed, &a->waiting_lock, 1000); /* its copy to be done */
}

err archive_purge(struct archive *a, const char *tenant, const char *session)
{
    CHECK(a, ARCHIVE_MAGIC);
    forget(a, session);
    TRY(archive_remove_copies(a, tenant, session));
    return log_remove(a->o.logs_dir, tenant, session);
}

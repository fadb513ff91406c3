#include "session/sweep.h"

#include "base/log.h"
#include "session/archive.h"
#include "session/live.h"
#include "session/store.h"
#include "session/volumes.h"

#define BUSY_MS 1000       /* while sandboxes run: idle timeouts are in seconds */
#define IDLE_MS 5000       /* between looks at an otherwise quiet service */
#define RECONCILE_MS 60000 /* R35 */

struct sweep {
    struct arena *a;
    int64_t now_ms;
    struct session_ref *refs;
    size_t n;
};

static err find_idle(struct db_conn *c, void *arg)
{
    struct sweep *s = arg;
    return sessions_to_stop(c, s->a, s->now_ms, &s->refs, &s->n);
}

static void stop_idle_sandboxes(struct session_manager *m)
{
    AUTO_ARENA a = arena_new();
    struct sweep s = {.a = a, .now_ms = clock_wall_ms(m->o.clock)};
    if (db_read(m->o.db, find_idle, &s)) {
        log_warn("cannot look for idle sandboxes: %s", err_text());
        return;
    }
    for (size_t i = 0; i < s.n; i++)
        manager_post(m, s.refs[i].tenant, s.refs[i].id, message_new(MESSAGE_STOP_SANDBOX, NULL));
}

static err find_unfinished(struct db_conn *c, void *arg)
{
    struct sweep *s = arg;
    return sessions_unfinished(c, s->a, &s->refs, &s->n);
}

err sweep_wake_unfinished(struct session_manager *m, size_t *out_n)
{
    AUTO_ARENA a = arena_new();
    struct sweep s = {.a = a};
    TRY(db_read(m->o.db, find_unfinished, &s));
    for (size_t i = 0; i < s.n; i++)
        session_wake(m, s.refs[i].tenant, s.refs[i].id);
    *out_n = s.n;
    return 0;
}

static void retry_unfinished(struct session_manager *m)
{
    size_t n;
    if (sweep_wake_unfinished(m, &n))
        log_warn("cannot look for unfinished sessions: %s", err_text());
}

struct forgetting {
    const char *tenant, *session;
};

static err forget_row(struct db_conn *c, void *arg)
{
    struct forgetting *f = arg;
    return session_forget(c, f->tenant, f->session);
}

err sweep_purge(struct session_manager *m, const char *tenant, const char *session)
{
    if (m->o.archive)
        TRY(archive_purge(m->o.archive, tenant, session));
    else
        TRY(log_remove(m->logs_dir, tenant, session));
    struct forgetting f = {tenant, session};
    return db_write(m->o.db, forget_row, &f);
}

static err find_expired(struct db_conn *c, void *arg)
{
    struct sweep *s = arg;
    return sessions_expired(c, s->a, s->now_ms, &s->refs, &s->n);
}

/* R29: deleted sessions whose time is over. */
static void purge_expired(struct session_manager *m)
{
    AUTO_ARENA a = arena_new();
    struct sweep s = {.a = a, .now_ms = clock_wall_ms(m->o.clock) - m->o.retention_ms};
    if (db_read(m->o.db, find_expired, &s)) {
        log_warn("cannot look for deleted sessions to purge: %s", err_text());
        return;
    }
    for (size_t i = 0; i < s.n; i++)
        if (sweep_purge(m, s.refs[i].tenant, s.refs[i].id))
            log_warn("cannot purge the deleted session %s: %s", s.refs[i].id, err_text());
}

static void reconcile(struct session_manager *m)
{
    purge_expired(m);
    retry_unfinished(m);
    if (sandboxes_reconcile(m->sandboxes))
        log_warn("cannot reconcile sandboxes: %s", err_text());
    stop_idle_sandboxes(m);
    if (volumes_sweep(m->o.parent, m->o.db, m->o.clock))
        log_warn("cannot look after volumes: %s", err_text());
}

/* With table_lock held. */
static bool take_retry(struct session_manager *m, int64_t now_ms)
{
    bool due = m->retry_at_ms != 0 && now_ms >= m->retry_at_ms;
    if (due)
        m->retry_at_ms = 0;
    return due;
}

void *sweep_thread(void *arg)
{
    struct session_manager *m = arg;
    int64_t next_ms = 0; /* the first at once: a crash may have left sandboxes behind */
    AUTO_LOCK(&m->table_lock);
    while (!m->stopping) {
        int64_t now = clock_monotonic_ms(m->o.clock);
        bool retry = take_retry(m, now);
        pthread_mutex_unlock(&m->table_lock);
        bool busy = sandboxes_running(m->sandboxes) > 0;
        if (now >= next_ms) {
            reconcile(m);
            next_ms = clock_monotonic_ms(m->o.clock) + RECONCILE_MS; /* it may have taken long */
        } else {
            if (retry)
                retry_unfinished(m);
            if (busy)
                stop_idle_sandboxes(m);
        }
        pthread_mutex_lock(&m->table_lock);
        if (!m->stopping)
            cond_wait_ms(&m->sweep_cond, &m->table_lock, busy ? BUSY_MS : IDLE_MS);
    }
    return NULL;
}

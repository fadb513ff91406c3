/* Puts the control process together: what the parent hands over, then every part in order, then
   stops them in reverse. */
#include "api/control.h"

#include "api/auth.h"
#include "api/credentials_env.h"
#include "api/file_record.h"
#include "api/files.h"
#include "api/lasting.h"
#include "api/routes.h"
#include "api/service.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "broker/catalog.h"
#include "broker/link.h"
#include "db/db.h"
#include "harness/harness.h"
#include "http/http.h"
#include "http/workers.h"
#include "objects/objects.h"
#include "parent/link.h"
#include "session/archive.h"
#include "session/manager.h"
#include "session/quota.h"

#include <sodium.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#define START_WAIT_MS 30000
#define STOP_GRACE_MS 5000
#define ARCHIVE_GRACE_MS 3000
#define SWEEP_MS (3600 * 1000LL)
#define REPLAY_THREADS 4
#define REPLAY_QUEUE_MAX 4096
#define FILE_MAX (1u << 20)

/* A model key of the environment, waiting for the database. */
struct env_key {
    struct env_key *next;
    char provider[PARENT_TEXT_MAX];
    struct buf sealed;
};

struct control {
    pthread_mutex_t notes_lock; /* guards what notes bring */
    pthread_cond_t changed;
    bool have_config, have_listen, stop;
    int listen_fd, link_fd;
    struct buf tls_cert, tls_key;
    struct env_key *env_keys;

    int64_t started_at_ms;
    bool restored; /* the database is a copy that was brought back */
    struct service service;
    struct http_server *server;
    char *logs_dir;
};

/* ---- notes from the parent ---- */

static void read_all(int fd, struct buf *out)
{
    char block[4096];
    ssize_t n;
    while (out->n < FILE_MAX && (n = read(fd, block, sizeof block)) > 0)
        buf_add(out, block, (size_t)n);
}

static void note_credential(struct control *c, const struct parent_message *m)
{
    struct env_key *k = mem_alloc(sizeof *k);
    snprintf(k->provider, sizeof k->provider, "%s", m->text);
    buf_add(&k->sealed, m->credential.data, m->credential.length);
    k->next = c->env_keys;
    c->env_keys = k;
}

static void note_host_exit(struct control *c, const struct parent_message *m)
{
    if (c->service.harness)
        harness_host_exited(c->service.harness, m->host.id, m->host.exit_status);
}

static void note_link(struct control *c, int *fd)
{
    if (c->service.broker) {
        broker_link_attach(c->service.broker, fd_take(fd));
        return;
    }
    fd_close(&c->link_fd);
    c->link_fd = fd_take(fd);
}

static void on_note(void *arg, const struct parent_message *m, int fds[FD_PASS_MAX])
{
    struct control *c = arg;
    pthread_mutex_lock(&c->notes_lock);
    if (m->verb == PARENT_NOTE_CONFIG) {
        c->service.config = m->config;
        c->have_config = true;
    } else if (m->verb == PARENT_NOTE_LISTEN) {
        fd_close(&c->listen_fd);
        c->listen_fd = fd_take(&fds[0]);
        if (fds[1] >= 0)
            read_all(fds[1], &c->tls_cert);
        if (fds[2] >= 0)
            read_all(fds[2], &c->tls_key);
        c->have_listen = true;
    } else if (m->verb == PARENT_NOTE_LINK) {
        note_link(c, &fds[0]);
    } else if (m->verb == PARENT_NOTE_HOST_EXIT) {
        note_host_exit(c, m);
    } else if (m->verb == PARENT_NOTE_CREDENTIAL) {
        note_credential(c, m);
    } else if (m->verb == PARENT_NOTE_STOP) {
        c->stop = true;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->notes_lock);
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
}

static err wait_for_start(struct control *c)
{
    int64_t deadline = clock_monotonic_ms(clock_real()) + START_WAIT_MS;
    AUTO_LOCK(&c->notes_lock);
    while (!c->have_config || !c->have_listen) {
        int64_t left = deadline - clock_monotonic_ms(clock_real());
        if (left <= 0)
            return fail(E_TIMEOUT, "the parent sent no configuration and no listening socket");
        cond_wait_ms(&c->changed, &c->notes_lock, left); /* notes of the parent */
    }
    return 0;
}

/* ---- parts ---- */

/* What was lost of the data directory comes back before anything looks at it (§28). */
static err open_objects(struct control *c)
{
    struct service *s = &c->service;
    TRY(objects_open(s->config.objects_dir, &s->objects));
    s->archive = archive_new(&(struct archive_options){.objects = s->objects,
                                                       .db = s->db,
                                                       .clock = s->clock,
                                                       .logs_dir = c->logs_dir,
                                                       .scratch_dir = s->config.data_dir});
    c->restored = archive_lost_rows(s->archive);
    TRY(archive_recover(s->archive));
    archive_start(s->archive);
    return c->restored ? files_reconcile(s, c->started_at_ms, true) : 0;
}

static err open_storage(struct control *c)
{
    char url[PARENT_TEXT_MAX + 32];
    snprintf(url, sizeof url, "sqlite:%s/control.db", c->service.config.data_dir);
    TRY(db_open(url, &c->service.db));
    TRY(catalog_load(c->service.config.runtime_dir, &c->service.catalog));
    char logs[PARENT_TEXT_MAX + 8];
    snprintf(logs, sizeof logs, "%s/logs", c->service.config.data_dir);
    c->logs_dir = mem_strdup(logs);
    TRY(quota_recount(c->service.db));
    c->service.auth = auth_new(c->service.db, c->service.clock);
    return open_objects(c);
}

static void take_env_keys(struct control *c)
{
    pthread_mutex_lock(&c->notes_lock);
    struct env_key *k = c->env_keys;
    c->env_keys = NULL;
    pthread_mutex_unlock(&c->notes_lock);
    while (k) {
        struct env_key *next = k->next;
        if (credentials_env_upsert(c->service.db, c->service.clock, c->service.config.tenant,
                                   k->provider, buf_str(&k->sealed)))
            log_error("cannot keep the key of %s: %s", k->provider, err_text());
        buf_done(&k->sealed);
        mem_free(k);
        k = next;
    }
}

static err start_sessions(struct control *c)
{
    struct service *s = &c->service;
    s->sessions = session_manager_new(&(struct session_manager_options){
        .db = s->db,
        .clock = s->clock,
        .parent = s->parent,
        .catalog = s->catalog,
        .logs_dir = c->logs_dir,
        .archive = s->archive,
        .objects = s->objects,
        .retention_ms =
            s->config.retention_days ? (int64_t)s->config.retention_days * 86400 * 1000 : 1});
    struct broker_events events = session_manager_broker_events(s->sessions);
    struct broker_link *broker = broker_link_new(&events);
    struct harness *harness = NULL;
    TRY(harness_new(
        &(struct harness_options){.parent = s->parent,
                                  .clock = s->clock,
                                  .events = session_manager_harness_events(s->sessions)},
        &harness));
    session_manager_connect(s->sessions, harness, broker);
    pthread_mutex_lock(&c->notes_lock); /* notes may use them from here on */
    s->harness = harness;
    s->broker = broker;
    int fd = fd_take(&c->link_fd);
    pthread_mutex_unlock(&c->notes_lock);
    if (fd >= 0)
        broker_link_attach(broker, fd);
    return session_manager_start(s->sessions);
}

static err start_server(struct control *c)
{
    struct service *s = &c->service;
    s->lastings = lastings_new(s->db, s->clock);
    s->replays = workers_new("replay", REPLAY_THREADS, REPLAY_QUEUE_MAX);
    struct http_options o = {.listen_fd = c->listen_fd,
                             .tls_cert_pem = c->tls_cert.n ? c->tls_cert.p : NULL,
                             .tls_key_pem = c->tls_key.n ? c->tls_key.p : NULL,
                             .tables = api_routes,
                             .service = s,
                             .clock = s->clock,
                             .db = s->db,
                             .authenticate = auth_authenticate,
                             .authenticate_cached = auth_authenticate_cached};
    memcpy(o.cursor_key, s->config.control_key, sizeof o.cursor_key);
    TRY(http_start(&o, &c->server));
    c->listen_fd = -1;
    return 0;
}

/* One descriptor a connection: as many as the system lets us have. */
static err raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return fail_errno("cannot read the limit of open files");
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        return fail_errno("cannot raise the limit of open files");
    return 0;
}

static err start(struct control *c)
{
    c->started_at_ms = clock_wall_ms(c->service.clock);
    TRY(raise_file_limit());
    TRY(wait_for_start(c));
    TRY(open_storage(c));
    take_env_keys(c);
    TRY(start_sessions(c));
    TRY(start_server(c));
    return parent_hello(c->service.parent);
}

/* Every hour: what idempotency keys keep for 24 h (R12). */
static void sweep_if_due(struct control *c, int64_t *swept_at_ms)
{
    int64_t now = clock_wall_ms(c->service.clock);
    if (now - *swept_at_ms < SWEEP_MS)
        return;
    if (*swept_at_ms == 0 && !c->restored && files_reconcile(&c->service, c->started_at_ms, false))
        log_warn("the objects of files were not compared with their rows: %s", err_text());
    *swept_at_ms = now;
    if (idempotency_sweep(c->service.db, now))
        log_warn("old idempotency keys were not removed: %s", err_text());
    if (files_sweep(&c->service))
        log_warn("unfinished files were not removed: %s", err_text());
}

static void wait_for_stop(struct control *c)
{
    int64_t swept_at_ms = 0;
    pthread_mutex_lock(&c->notes_lock);
    while (!c->stop) {
        pthread_mutex_unlock(&c->notes_lock);
        sweep_if_due(c, &swept_at_ms);
        pthread_mutex_lock(&c->notes_lock);
        if (c->stop)
            break;
        if (c->env_keys) {
            pthread_mutex_unlock(&c->notes_lock);
            take_env_keys(c);
            pthread_mutex_lock(&c->notes_lock);
            continue;
        }
        cond_wait_ms(&c->changed, &c->notes_lock, 60000); /* the parent's word to stop */
    }
    pthread_mutex_unlock(&c->notes_lock);
}

/* Running turns are left as they are: their logs say where to go on (R26). */
static void stop(struct control *c)
{
    log_info("stopping");
    workers_stop(c->service.replays);
    broker_end_checks(c->service.broker);
    lastings_stop(c->service.lastings);
    http_stop(c->server, STOP_GRACE_MS);
    workers_free(c->service.replays);
    session_manager_stop(c->service.sessions);
    archive_stop(c->service.archive, ARCHIVE_GRACE_MS);
    harness_free(c->service.harness);
    /* The database stays open: threads of tool calls under way still write to it until the process
       ends, which is now. What was committed is on disk; the next start needs no clean close. */
}

int control_main(void)
{
    if (sodium_init() < 0)
        log_fatal("libsodium does not start");
    static struct control c = {
        .notes_lock = PTHREAD_MUTEX_INITIALIZER, .listen_fd = -1, .link_fd = -1};
    cond_init(&c.changed);
    c.service.clock = clock_real();
    c.service.parent = parent_link_open(PARENT_FD, on_note, &c);
    if (start(&c))
        log_fatal("control cannot start: %s", err_text());
    wait_for_stop(&c);
    stop(&c);
    return 0;
}

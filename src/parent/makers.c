#include "parent/makers.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "parent/maker.h"
#include "parent/ranges.h"
#include "parent/roles.h"
#include "sandbox/ledger.h"

#define WAITING_MAX 1024
#define BUILD_MEMORY_MIB 1024 /* package managers need more than most tools */
/* Makers started ahead: executing this program takes longer than booting a sandbox. One for CREATE,
   one for the START that follows at once. */
#define SPARES 2
#define SPARE_RETRY_MS 1000

struct maker {
    pid_t pid; /* 0: free */
    int fd;    /* -1 once it answered or hung up */
    bool answered;
    int64_t started_ms, deadline_ms;
    struct parent_message request;
};

/* A maker that waits for its request. */
struct spare {
    pid_t pid; /* 0: none */
    int fd;
};

struct waiting {
    struct waiting *next;
    struct parent_message request;
};

struct makers {
    struct makers_options o;
    struct maker makers[MAKERS_MAX];
    struct spare spares[SPARES];
    int64_t spares_at_ms;         /* not before: one died or could not be started */
    struct waiting *first, *last; /* no free maker, or one works on the same sandbox */
    unsigned waiting_count;
};

struct makers *makers_new(const struct makers_options *options)
{
    struct makers *s = mem_alloc(sizeof *s);
    s->o = *options;
    for (size_t i = 0; i < MAKERS_MAX; i++)
        s->makers[i].fd = -1;
    for (size_t i = 0; i < SPARES; i++)
        s->spares[i].fd = -1;
    return s;
}

void makers_forget(struct makers *s)
{
    while (s->first) {
        struct waiting *w = s->first;
        s->first = w->next;
        mem_free(w);
    }
    s->last = NULL;
    s->waiting_count = 0;
    for (size_t i = 0; i < MAKERS_MAX; i++)
        s->makers[i].request.id = 0;
}

void makers_free(struct makers *s)
{
    if (s == NULL)
        return;
    makers_forget(s);
    for (size_t i = 0; i < MAKERS_MAX; i++)
        fd_close(&s->makers[i].fd);
    for (size_t i = 0; i < SPARES; i++)
        fd_close(&s->spares[i].fd); /* it ends when it sees that */
    mem_free(s);
}

/* An id of 0 marks a request whose asker is gone. */
static void answer(struct makers *s, const struct parent_message *request,
                   struct parent_message *reply)
{
    if (request->id == 0)
        return;
    reply->verb = request->verb;
    reply->id = request->id;
    s->o.reply(s->o.arg, reply);
}

static void refuse(struct makers *s, const struct parent_message *request, err e)
{
    struct parent_message *reply = mem_alloc(sizeof *reply);
    parent_message_outcome(reply, e);
    answer(s, request, reply);
    mem_free(reply);
}

/* The sandbox's folder, made at CREATE only: START of an unknown sandbox is E_NOT_FOUND. */
static err prepare_folder(struct makers *s, const struct parent_message *m, struct maker_request *r)
{
    bool makes = m->verb == PARENT_SANDBOX_CREATE || m->verb == PARENT_SANDBOX_FORK ||
                 m->verb == PARENT_IMAGE_PREPARE;
    snprintf(r->dir, sizeof r->dir, "%s/sandboxes/%s", s->o.data_dir, r->spec.id);
    if (makes && mkdir(r->dir, 0711) < 0 && errno != EEXIST)
        return fail_errno("create %s", r->dir);
    if (makes && chmod(r->dir, 0711) < 0) /* whatever the umask is */
        return fail_errno("set the mode of %s", r->dir);
    if (access(r->dir, F_OK) < 0)
        return fail(E_NOT_FOUND, "sandbox %s was not created", r->spec.id);
    if (!s->o.uid_ranges)
        return 0;
    err e = range_read(s->o.data_dir, r->spec.id, &r->uid_base);
    return e == E_NOT_FOUND && makes ? range_choose(s->o.data_dir, r->spec.id, &r->uid_base) : e;
}

/* What a fork copies. */
static err fill_source(const struct makers *s, const struct parent_sandbox *fork,
                       struct maker_request *r)
{
    memcpy(r->from, fork->from, sizeof r->from);
    snprintf(r->from_dir, sizeof r->from_dir, "%s/sandboxes/%s", s->o.data_dir, r->from);
    if (access(r->from_dir, F_OK) < 0)
        return fail(E_NOT_FOUND, "there is no sandbox %s to copy", r->from);
    return s->o.uid_ranges ? range_read(s->o.data_dir, r->from, &r->from_uid_base) : 0;
}

/* In the data directory. */
static err path_in_data(const struct makers *s, const char *name, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/%s", s->o.data_dir, name) >= PATH_MAX
               ? fail(E_INVALID, "the path of the data directory is too long")
               : 0;
}

static err fill_request(struct makers *s, const struct parent_message *m, struct maker_request *r)
{
    *r = (struct maker_request){
        .verb = m->verb,
        .spec = m->sandbox.spec,
        .grace_ms = m->sandbox.grace_ms,
        .socket_owner = s->o.control_uid,
        .memory_mib = s->o.memory_mib,
        .allow_unenforced = s->o.allow_unenforced,
    };
    if (m->verb == PARENT_IMAGE_PREPARE) {
        r->spec.memory_mib = s->o.limit_memory ? BUILD_MEMORY_MIB : 0;
        memcpy(r->packages, m->image.packages, sizeof r->packages);
        snprintf(r->allow_images, sizeof r->allow_images, "%s", s->o.allow_images);
    }
    if (m->verb == PARENT_SANDBOX_FORK)
        TRY(fill_source(s, &m->sandbox, r));
    snprintf(r->provider, sizeof r->provider, "%s", s->o.provider);
    snprintf(r->runtime, sizeof r->runtime, "%s", s->o.runtime_dir);
    snprintf(r->allow_mount, sizeof r->allow_mount, "%s", s->o.allow_mount);
    TRY(path_in_data(s, "images", r->images));
    TRY(path_in_data(s, "sandboxes", r->sandboxes));
    TRY(path_in_data(s, "volumes", r->volumes));
    if (makers_is_of_mounts(m->verb))
        return 0;
    if (snprintf(r->socket, sizeof r->socket, "%s/sandboxes/%s/agent.sock", s->o.short_dir,
                 r->spec.id) >= (int)sizeof r->socket)
        return fail(E_INVALID, "the path of the data directory is too long for a socket");
    return prepare_folder(s, m, r);
}

/* Nothing to do for a sandbox that is not there: the providers' verbs are idempotent. */
static bool is_done_already(const struct makers *s, const struct parent_message *m)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sandboxes/%s", s->o.data_dir, m->sandbox.spec.id);
    bool ends = m->verb == PARENT_SANDBOX_STOP || m->verb == PARENT_SANDBOX_DESTROY ||
                m->verb == PARENT_SANDBOX_STATS;
    return ends && access(path, F_OK) < 0 && errno == ENOENT;
}

static void answer_nothing(struct makers *s, const struct parent_message *m)
{
    struct parent_message *reply = mem_alloc(sizeof *reply);
    memcpy(reply->status_of.id, m->sandbox.spec.id, ID_MAX);
    answer(s, m, reply); /* SANDBOX_NONE */
    mem_free(reply);
}

static struct maker *free_maker(struct makers *s)
{
    for (size_t i = 0; i < MAKERS_MAX; i++) {
        if (s->makers[i].pid == 0)
            return &s->makers[i];
    }
    return NULL;
}

static bool is_busy(const struct makers *s, const char *id)
{
    for (size_t i = 0; i < MAKERS_MAX; i++) {
        /* One that answered only has to end. */
        if (s->makers[i].pid && !s->makers[i].answered &&
            strcmp(s->makers[i].request.sandbox.spec.id, id) == 0)
            return true;
    }
    return false;
}

static err spawn_maker(const struct makers *s, struct spare *out)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("socketpair");
    AUTO_FD ours = pair[0];
    AUTO_FD theirs = pair[1];
    /* A child of a dead maker may hold the other end: never wait for it. */
    if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
        return fail_errno("fcntl");
    TRY(role_spawn(&(struct role_start){.name = "maker", .args = s->o.role_args, .link = theirs},
                   &out->pid));
    out->fd = fd_take(&ours);
    return 0;
}

static void fill_spares(struct makers *s, int64_t now_ms)
{
    for (size_t i = 0; i < SPARES && now_ms >= s->spares_at_ms; i++) {
        if (s->spares[i].pid == 0 && spawn_maker(s, &s->spares[i]))
            s->spares_at_ms = now_ms + SPARE_RETRY_MS; /* the next verb says why */
    }
}

static err take_maker(struct makers *s, struct spare *out)
{
    for (size_t i = 0; i < SPARES; i++) {
        if (s->spares[i].pid) {
            *out = s->spares[i];
            s->spares[i] = (struct spare){.fd = -1};
            return 0;
        }
    }
    return spawn_maker(s, out);
}

/* Hands the request to a maker; a spare that died unnoticed is passed over. */
static err employ_maker(struct makers *s, struct maker *k, const struct maker_request *r)
{
    err e = E_CLOSED;
    for (int tries = 0; e == E_CLOSED && tries <= SPARES; tries++) {
        struct spare maker;
        TRY(take_maker(s, &maker));
        k->pid = maker.pid;
        k->fd = maker.fd;
        e = fd_send(k->fd, r, sizeof *r, NULL, 0); /* fits the empty socket */
        if (e) {
            fd_close(&k->fd);
            k->pid = 0;
        }
    }
    return e;
}

static void start_maker(struct makers *s, struct maker *k, const struct parent_message *m,
                        int64_t now_ms)
{
    if (is_done_already(s, m)) {
        answer_nothing(s, m);
        return;
    }
    struct maker_request *r = mem_alloc(sizeof *r);
    k->request = *m;
    k->answered = false;
    k->started_ms = now_ms;
    k->deadline_ms =
        now_ms + (m->verb == PARENT_IMAGE_PREPARE ? MAKER_IMAGE_TIMEOUT_MS : MAKER_TIMEOUT_MS);
    err e = fill_request(s, m, r);
    if (!e)
        e = employ_maker(s, k, r);
    mem_free(r);
    if (e)
        refuse(s, m, e);
}

/* Starts what can start, in order of arrival for each sandbox. */
static void start_waiting(struct makers *s, int64_t now_ms)
{
    struct waiting **at = &s->first;
    s->last = NULL;
    for (struct waiting *w; (w = *at);) {
        struct maker *k = free_maker(s);
        bool earlier = false; /* one for the same sandbox waits before it */
        for (const struct waiting *b = s->first; b != w; b = b->next)
            earlier |= strcmp(b->request.sandbox.spec.id, w->request.sandbox.spec.id) == 0;
        if (k && !earlier && !is_busy(s, w->request.sandbox.spec.id)) {
            *at = w->next;
            s->waiting_count--;
            start_maker(s, k, &w->request, now_ms);
            mem_free(w);
        } else {
            s->last = w;
            at = &w->next;
        }
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Sessions' sandboxes, snapshots, and what is left of a build or a snapshot whose maker died. */
static bool is_listed(const struct makers *s, const char *id)
{
    bool is_made =
        id_valid(str_of(id), MAKERS_BUILD_ID) || id_valid(str_of(id), SANDBOX_SNAPSHOT_ID);
    return id_valid(str_of(id), "sess") || (is_made && !is_busy(s, id));
}

/* R35: the ids there are, in order; *out is an array of ID_MAX-byte names. */
static err list_ids(const struct makers *s, char (**out)[ID_MAX], size_t *out_n)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sandboxes", s->o.data_dir);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return fail_errno("open %s", path);
    char(*ids)[ID_MAX] = NULL;
    size_t n = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        if (!is_listed(s, d->d_name))
            continue;
        ids = mem_realloc(ids, size_mul(n + 1, ID_MAX));
        snprintf(ids[n++], ID_MAX, "%.*s", ID_MAX - 1, d->d_name);
    }
    closedir(dir);
    if (n)
        qsort(ids, n, ID_MAX, by_name);
    *out = ids;
    *out_n = n;
    return 0;
}

static void answer_list(struct makers *s, const struct parent_message *m)
{
    char(*ids)[ID_MAX] = NULL;
    size_t n = 0;
    err e = list_ids(s, &ids, &n);
    if (e) {
        refuse(s, m, e);
        return;
    }
    struct parent_message *reply = mem_alloc(sizeof *reply);
    reply->list.from = m->list.from;
    reply->list.total = (uint32_t)n;
    if (m->list.from < n)
        memcpy(reply->list.item.id, ids[m->list.from], ID_MAX);
    answer(s, m, reply);
    mem_free(reply);
    mem_free(ids);
}

/* Read here: a maker for it would cost more than the answer. */
static void answer_fits(struct makers *s, const struct parent_message *m)
{
    char folder[PATH_MAX];
    snprintf(folder, sizeof folder, "%s/sandboxes", s->o.data_dir);
    const struct sandbox_provider *provider = sandbox_provider_named(s->o.provider);
    const struct ledger ledger = {
        .folder = folder, .capacity_mib = s->o.memory_mib, .lives = provider->lives};
    struct parent_message *reply = mem_alloc(sizeof *reply);
    parent_message_outcome(reply, ledger_check(&ledger, sandbox_memory_mib(&m->sandbox.spec)));
    answer(s, m, reply);
    mem_free(reply);
}

void makers_request(struct makers *s, const struct parent_message *m, int64_t now_ms)
{
    if (m->verb == PARENT_SANDBOX_LIST) {
        answer_list(s, m);
        return;
    }
    if (m->verb == PARENT_SANDBOX_FITS) {
        answer_fits(s, m);
        return;
    }
    err e = makers_check_message(m);
    if (!e && s->waiting_count >= WAITING_MAX)
        e = fail(E_UNAVAILABLE, "%u sandbox requests wait already", s->waiting_count);
    if (e) {
        refuse(s, m, e);
        return;
    }
    struct waiting *w = mem_alloc(sizeof *w);
    w->request = *m;
    if (s->last)
        s->last->next = w;
    else
        s->first = w;
    s->last = w;
    s->waiting_count++;
    start_waiting(s, now_ms);
}

size_t makers_poll(const struct makers *s, struct pollfd *out)
{
    size_t n = 0;
    for (size_t i = 0; i < MAKERS_MAX; i++) {
        if (s->makers[i].fd >= 0)
            out[n++] = (struct pollfd){.fd = s->makers[i].fd, .events = POLLIN};
    }
    return n;
}

/* The provider removed the folder; what may be left of it is ours. */
static void finish_destroy(const struct makers *s, const char *id)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sandboxes/%s/uid-base", s->o.data_dir, id);
    unlink(path);
    snprintf(path, sizeof path, "%s/sandboxes/%s", s->o.data_dir, id);
    rmdir(path);
}

static void log_verb(const struct maker *k, const struct parent_message *reply, int64_t now_ms)
{
    static const char *const words[] = {
        [PARENT_SANDBOX_CREATE] = "created", [PARENT_SANDBOX_START] = "started",
        [PARENT_SANDBOX_STOP] = "stopped",   [PARENT_SANDBOX_DESTROY] = "destroyed",
        [PARENT_SANDBOX_FORK] = "copied",    [PARENT_IMAGE_PREPARE] = "used to make an image",
    };
    uint32_t verb = k->request.verb;
    if (verb == PARENT_SANDBOX_STATS || makers_is_of_mounts(verb))
        return;
    log_bind(NULL, k->request.sandbox.spec.id);
    if (reply->status)
        log_warn("sandbox not %s: %.*s", words[verb], PARENT_TEXT_MAX - 1, reply->text);
    else
        log_info("sandbox %s in %d ms", words[verb], (int)(now_ms - k->started_ms));
    log_bind(NULL, NULL);
}

/* The answer into *reply. E_NOT_FOUND: it was a note, which went its way. */
static err receive(struct makers *s, struct maker *k, struct parent_message *reply)
{
    int fds[FD_PASS_MAX];
    size_t n = 0;
    TRY(fd_recv(k->fd, reply, sizeof *reply, &n, fds));
    bool note = n == sizeof *reply && reply->verb == PARENT_NOTE_EGRESS;
    if (note && fds[0] >= 0 && fds[1] >= 0)
        s->o.way_out(s->o.arg, reply, fds, 2);
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
    if (n != sizeof *reply)
        return fail(E_INVALID, "an answer of %zu bytes", n);
    return note ? fail(E_NOT_FOUND, "a note") : 0;
}

/* Without an answer nothing is said here: the exit status tells more (makers_exited). */
static void take_answer(struct makers *s, struct maker *k, int64_t now_ms)
{
    struct parent_message *reply = mem_alloc(sizeof *reply);
    const char *id = k->request.sandbox.spec.id;
    err e = receive(s, k, reply);
    if (e == E_NOT_FOUND) { /* that was a note: the answer comes later */
        mem_free(reply);
        return;
    }
    fd_close(&k->fd);
    if (e) {
        mem_free(reply);
        return;
    }
    k->answered = true;
    if (k->request.verb == PARENT_IMAGE_PREPARE ||
        (k->request.verb == PARENT_SANDBOX_DESTROY && reply->status == 0))
        finish_destroy(s, id);
    if (k->request.verb == PARENT_SANDBOX_START && reply->status == 0)
        snprintf(reply->sandbox.socket, sizeof reply->sandbox.socket, "%s/sandboxes/%s/agent.sock",
                 s->o.control_dir, id);
    log_verb(k, reply, now_ms);
    answer(s, &k->request, reply);
    mem_free(reply);
}

void makers_readable(struct makers *s, int fd, int64_t now_ms)
{
    for (size_t i = 0; i < MAKERS_MAX; i++) {
        if (s->makers[i].fd == fd)
            take_answer(s, &s->makers[i], now_ms);
    }
    start_waiting(s, now_ms);
}

static void spare_exited(struct makers *s, pid_t pid, int64_t now_ms)
{
    for (size_t i = 0; i < SPARES; i++) {
        if (s->spares[i].pid == pid) {
            fd_close(&s->spares[i].fd);
            s->spares[i].pid = 0;
            s->spares_at_ms = now_ms + SPARE_RETRY_MS;
        }
    }
}

void makers_exited(struct makers *s, pid_t pid, int status, int64_t now_ms)
{
    spare_exited(s, pid, now_ms);
    for (size_t i = 0; i < MAKERS_MAX; i++) {
        struct maker *k = &s->makers[i];
        if (k->pid != pid)
            continue;
        while (k->fd >= 0) /* its answer may still be in the socket */
            take_answer(s, k, now_ms);
        if (!k->answered)
            refuse(s, &k->request,
                   WIFSIGNALED(status)
                       ? fail(E_INTERNAL, "the sandbox maker was killed by signal %d",
                              WTERMSIG(status))
                       : fail(E_INTERNAL, "the sandbox maker ended without an answer (status %d)",
                              WEXITSTATUS(status)));
        k->pid = 0;
        start_waiting(s, now_ms);
        return;
    }
}

int64_t makers_tick(struct makers *s, int64_t now_ms)
{
    fill_spares(s, now_ms);
    int64_t next = s->spares_at_ms > now_ms ? s->spares_at_ms : INT64_MAX;
    for (size_t i = 0; i < MAKERS_MAX; i++) {
        struct maker *k = &s->makers[i];
        if (k->pid == 0)
            continue;
        if (k->deadline_ms > now_ms) {
            next = k->deadline_ms < next ? k->deadline_ms : next;
            continue;
        }
        if (k->fd >= 0)
            refuse(s, &k->request,
                   fail(E_TIMEOUT, "the sandbox maker took more than %lld s",
                        (long long)((now_ms - k->started_ms) / 1000)));
        fd_close(&k->fd);
        kill(k->pid, SIGKILL);
        k->deadline_ms = INT64_MAX;
    }
    return next;
}

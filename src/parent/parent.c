#include "parent/parent.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "parent/child.h"
#include "parent/credentials.h"
#include "parent/hosts.h"
#include "parent/makers.h"
#include "parent/notes.h"
#include "parent/peer.h"
#include "parent/roles.h"
#include "parent/vault_key.h"

#define DRAIN_MS 10000 /* control finishes what it does */
#define END_MS 2000    /* between TERM and KILL */

enum stage {
    RUNNING,
    DRAINING, /* control was told to stop */
    ENDING,   /* TERM was sent to all */
    KILLING
};

struct parent {
    const struct parent_options *o;
    char short_dir[SOCKET_PATH_MAX];
    struct child broker, control;
    struct hosts hosts;
    struct makers *makers;
    struct environment_key *keys;
    size_t key_count;
    int signals;
    enum stage stage;
    int64_t stage_until_ms;
    bool announced;         /* control answered once: from now on roles are restarted */
    struct err_slot failed; /* why parent_run ends; .e == 0: it was told to */
};

static int64_t now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

static void set_stage(struct parent *p, enum stage stage, int64_t limit_ms)
{
    p->stage = stage;
    p->stage_until_ms = now_ms() + limit_ms;
}

/* Before the service was ever up, trouble ends it; the person who started it is there to see. */
static void give_up(struct parent *p, err e)
{
    if (p->failed.e == 0 && e)
        err_save(&p->failed);
    if (p->stage < ENDING) {
        set_stage(p, ENDING, END_MS);
        if (p->control.pid)
            kill(p->control.pid, SIGTERM);
    }
}

/* A new socket between control and broker, whenever one of them is new. */
static void link_zones(struct parent *p)
{
    int pair[2];
    if (p->control.pid == 0 || p->broker.pid == 0)
        return;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        give_up(p, fail_errno("socketpair"));
        return;
    }
    child_sent(&p->control, note_link(&p->control.peer, pair[0]));
    child_sent(&p->broker, note_link(&p->broker.peer, pair[1]));
    fd_close(&pair[0]);
    fd_close(&pair[1]);
}

/* Starting control and broker */

/* What a new child must know first. */
static void tell_beginnings(struct parent *p, struct child *c)
{
    bool control = c == &p->control;
    child_sent(c, note_config(&c->peer, p->o, p->short_dir, control));
    if (control)
        child_sent(c, note_listen(&c->peer, p->o));
    for (size_t i = 0; control && i < p->key_count; i++)
        child_sent(c, note_credential(&c->peer, &p->keys[i]));
    for (size_t i = 0; !control && i < HOSTS_MAX; i++) {
        if (p->hosts.slots[i].id)
            child_sent(c, note_gateway(&c->peer, &p->hosts.slots[i], false));
    }
    link_zones(p);
}

static void start_child(struct parent *p, struct child *c)
{
    c->ready = false;
    c->started_ms = now_ms();
    err e = child_spawn(c, p->o);
    if (e && !p->announced) {
        give_up(p, e);
        return;
    }
    if (e) {
        log_error("cannot start %s: %s; trying again", c->name, err_text());
        c->restart_ms = now_ms() + CHILD_BACKOFF_MAX_MS;
        return;
    }
    tell_beginnings(p, c);
}

/* Requests */

static void on_hello(struct parent *p, struct child *from, struct parent_message *m)
{
    (void)m;
    from->ready = true;
    log_info("%s is ready (pid %d)", from->name, (int)from->pid);
    if (from == &p->broker && p->control.pid == 0 && !p->announced)
        start_child(p, &p->control);
    if (from == &p->control && !p->announced) {
        p->announced = true;
        p->o->ready(p->o->arg);
    }
}

static void on_start_host(struct parent *p, struct child *from, struct parent_message *m)
{
    const struct host *host = NULL;
    AUTO_FD fd = -1;
    m->host.tenant[sizeof m->host.tenant - 1] = 0;
    err e = p->stage == RUNNING ? hosts_start(&p->hosts, m->host.tenant, &host, &fd)
                                : fail(E_UNAVAILABLE, "the service is stopping");
    if (e) {
        child_reply(from, m, e);
        return;
    }
    /* Before control can tell the broker of sessions there. */
    child_sent(&p->broker, note_gateway(&p->broker.peer, host, false));
    m->status = 0;
    m->host.id = host->id;
    child_send(from, m, &fd, 1);
}

static void on_bind_host(struct parent *p, struct child *from, struct parent_message *m)
{
    const struct host *host = NULL;
    m->host.tenant[sizeof m->host.tenant - 1] = 0;
    err e = hosts_bind(&p->hosts, m->host.id, m->host.tenant, &host);
    if (!e)
        child_sent(&p->broker, note_gateway(&p->broker.peer, host, true));
    child_reply(from, m, e);
}

static void on_stop_host(struct parent *p, struct child *from, struct parent_message *m)
{
    child_reply(from, m, hosts_stop(&p->hosts, m->host.id));
}

static void on_sandbox(struct parent *p, struct child *from, struct parent_message *m)
{
    (void)from;
    makers_request(p->makers, m, now_ms());
}

static void sandbox_replied(void *arg, const struct parent_message *m)
{
    struct parent *p = arg;
    child_send(&p->control, m, NULL, 0);
}

static void way_out_opened(void *arg, const struct parent_message *m, const int *fds, size_t n)
{
    struct parent *p = arg;
    if (p->broker.pid)
        child_send(&p->broker, m, fds, n);
}

static void on_open_credential(struct parent *p, struct child *from, struct parent_message *m)
{
    struct parent_message *reply = mem_alloc(sizeof *reply);
    reply->verb = m->verb;
    reply->id = m->id;
    err e = credentials_open(p->o->key, &m->credential, &reply->credential);
    if (e)
        log_warn("a credential could not be opened: %s", err_text());
    child_reply(from, reply, e);
    secret_wipe(reply, sizeof *reply);
    mem_free(reply);
}

/* Who may ask for what. Everything else ends the asker. */
static const struct {
    uint32_t verb;
    bool control, broker;
    void (*handle)(struct parent *p, struct child *from, struct parent_message *m);
} requests[] = {
    {PARENT_HELLO, true, true, on_hello},
    {PARENT_START_HOST, true, false, on_start_host},
    {PARENT_STOP_HOST, true, false, on_stop_host},
    {PARENT_BIND_HOST, true, false, on_bind_host},
    {PARENT_SANDBOX_CREATE, true, false, on_sandbox},
    {PARENT_SANDBOX_START, true, false, on_sandbox},
    {PARENT_SANDBOX_STOP, true, false, on_sandbox},
    {PARENT_SANDBOX_DESTROY, true, false, on_sandbox},
    {PARENT_SANDBOX_STATS, true, false, on_sandbox},
    {PARENT_SANDBOX_FORK, true, false, on_sandbox},
    {PARENT_MOUNT_CHECK, true, false, on_sandbox},
    {PARENT_VOLUME_MEASURE, true, false, on_sandbox},
    {PARENT_VOLUME_REMOVE, true, false, on_sandbox},
    {PARENT_SANDBOX_FITS, true, false, on_sandbox},
    {PARENT_SANDBOX_LIST, true, false, on_sandbox},
    {PARENT_IMAGE_PREPARE, true, false, on_sandbox},
    {PARENT_OPEN_CREDENTIAL, false, true, on_open_credential},
};

static err dispatch(struct parent *p, struct child *from, struct parent_message *m)
{
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        bool may = from == &p->control ? requests[i].control : requests[i].broker;
        if (requests[i].verb != m->verb || !may)
            continue;
        requests[i].handle(p, from, m);
        return 0;
    }
    return fail(E_FORBIDDEN, "it may not ask for verb %u", m->verb);
}

static void read_child(struct parent *p, struct child *c)
{
    struct parent_message *m = mem_alloc(sizeof *m);
    err e = peer_receive(&c->peer, m);
    if (!e)
        e = dispatch(p, c, m);
    secret_wipe(m, sizeof *m);
    mem_free(m);
    if (!e)
        return;
    if (e != E_CLOSED)
        log_error("%s sent what it must not: %s; it is ended", c->name, err_text());
    peer_close(&c->peer);
    if (c->pid && (e != E_CLOSED || p->stage == RUNNING))
        kill(c->pid, SIGKILL);
}

/* Ends of children */

static void child_exited(struct parent *p, struct child *c, int status)
{
    char text[48];
    child_status_text(status, text, sizeof text);
    c->pid = 0;
    peer_close(&c->peer);
    if (c == &p->control) {
        hosts_stop_all(&p->hosts); /* their sessions went with it */
        makers_forget(p->makers);
    }
    if (p->stage >= DRAINING) {
        log_info("%s ended (%s)", c->name, text);
        return;
    }
    if (!p->announced) {
        give_up(p,
                fail(E_UNAVAILABLE, "%s ended before it was ready (%s); its last words are above",
                     c->name, text));
        return;
    }
    int64_t now = now_ms(), wait = child_backoff_ms(c, now);
    log_error("%s died (%s); starting it again in %d ms", c->name, text, (int)wait);
    c->restart_ms = now + wait;
    if (wait == 0)
        start_child(p, c);
}

static void reap(struct parent *p)
{
    for (;;) {
        int status = 0;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid <= 0)
            return;
        struct host host;
        char text[48];
        if (pid == p->control.pid) {
            child_exited(p, &p->control, status);
        } else if (pid == p->broker.pid) {
            child_exited(p, &p->broker, status);
        } else if (hosts_exited(&p->hosts, pid, &host)) {
            log_info("host %u ended (%s)", host.id, child_status_text(status, text, sizeof text));
            child_sent(&p->control, note_host_exit(&p->control.peer, &host, status));
            child_sent(&p->broker, note_host_exit(&p->broker.peer, &host, status));
        } else {
            makers_exited(p->makers, pid, status, now_ms());
        }
    }
}

/* Stopping */

static void signal_all(struct parent *p, int sig)
{
    const pid_t pids[] = {p->control.pid, p->broker.pid};
    for (size_t i = 0; i < sizeof pids / sizeof *pids; i++) {
        if (pids[i])
            kill(pids[i], sig);
    }
    hosts_stop_all(&p->hosts);
}

static bool all_ended(const struct parent *p)
{
    if (p->control.pid || p->broker.pid)
        return false;
    for (size_t i = 0; i < HOSTS_MAX; i++) {
        if (p->hosts.slots[i].id)
            return false;
    }
    return true;
}

/* First signal: drain. Second: do not wait. */
static void on_stop_signal(struct parent *p, int sig)
{
    log_info("%s: stopping; sandboxes keep running", strsignal(sig));
    if (p->stage != RUNNING) {
        set_stage(p, KILLING, END_MS);
        signal_all(p, SIGKILL);
        return;
    }
    set_stage(p, DRAINING, DRAIN_MS);
    if (p->control.pid)
        child_sent(&p->control, note_stop(&p->control.peer));
}

static void advance_stage(struct parent *p)
{
    bool late = now_ms() >= p->stage_until_ms;
    if (p->stage == DRAINING && (late || p->control.pid == 0)) {
        if (p->control.pid)
            log_warn("control did not stop within %d s", DRAIN_MS / 1000);
        set_stage(p, ENDING, END_MS);
        signal_all(p, SIGTERM);
    } else if (p->stage == ENDING && late) {
        set_stage(p, KILLING, END_MS);
        signal_all(p, SIGKILL);
    }
}

static void read_signals(struct parent *p)
{
    struct signalfd_siginfo info;
    while (read(p->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            reap(p);
        else
            on_stop_signal(p, (int)info.ssi_signo);
    }
}

/* The loop */

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Starts what is due and kills what is silent; returns when to look again. */
static int64_t tend_child(struct parent *p, struct child *c, int64_t now)
{
    if (p->stage != RUNNING)
        return INT64_MAX;
    if (c->pid == 0 && p->announced) {
        if (now < c->restart_ms)
            return c->restart_ms;
        start_child(p, c);
    }
    if (c->pid == 0 || c->ready)
        return INT64_MAX;
    if (now < c->started_ms + CHILD_HELLO_MS)
        return c->started_ms + CHILD_HELLO_MS;
    log_error("%s was not ready within %d s; it is ended", c->name, CHILD_HELLO_MS / 1000);
    kill(c->pid, SIGKILL);
    return INT64_MAX;
}

static int next_timeout_ms(struct parent *p)
{
    int64_t now = now_ms();
    int64_t at = sooner(tend_child(p, &p->broker, now), tend_child(p, &p->control, now));
    at = sooner(at, makers_tick(p->makers, now));
    if (p->stage != RUNNING)
        at = sooner(at, p->stage_until_ms);
    if (at == INT64_MAX)
        return -1;
    return at <= now ? 0 : (int)(at - now < 60000 ? at - now : 60000);
}

static void serve_child(struct parent *p, struct child *c, short revents)
{
    if (revents & POLLOUT && peer_flush(&c->peer) == E_IO)
        log_error("cannot talk to %s: %s", c->name, err_text());
    if (revents & (POLLIN | POLLHUP | POLLERR) && c->peer.fd >= 0)
        read_child(p, c);
}

static struct pollfd poll_child(const struct child *c)
{
    return (struct pollfd){.fd = c->peer.fd,
                           .events = (short)(POLLIN | (peer_waits(&c->peer) ? POLLOUT : 0))};
}

static void run_loop(struct parent *p)
{
    while (p->stage == RUNNING || !all_ended(p)) {
        int timeout = next_timeout_ms(p);
        struct pollfd fds[3 + MAKERS_MAX] = {
            {.fd = p->signals, .events = POLLIN}, poll_child(&p->control), poll_child(&p->broker)};
        size_t makers = makers_poll(p->makers, fds + 3);
        if (poll(fds, 3 + makers, timeout) < 0 && errno != EINTR)
            log_fatal("poll: %s", strerror(errno));
        /* Messages before exits: what a child said last counts. */
        serve_child(p, &p->control, fds[1].revents);
        serve_child(p, &p->broker, fds[2].revents);
        for (size_t i = 3; i < 3 + makers; i++) {
            if (fds[i].revents)
                makers_readable(p->makers, fds[i].fd, now_ms());
        }
        if (fds[0].revents)
            read_signals(p);
        if (p->stage != RUNNING)
            advance_stage(p);
    }
}

/* Setting up */

static err take_signals(struct parent *p)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    p->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return p->signals < 0 ? fail_errno("signalfd") : 0;
}

static err take_keys(struct parent *p)
{
    size_t ignored = 0;
    p->keys = mem_alloc(size_mul(ENVIRONMENT_KEYS_MAX, sizeof *p->keys));
    TRY(credentials_take(vault_key_public(p->o->key), p->o->config.tenant,
                         clock_wall_ms(clock_real()), p->keys, &p->key_count, &ignored));
    for (size_t i = 0; i < p->key_count; i++)
        log_info("using the environment's model key for %s", p->keys[i].provider);
    if (ignored)
        log_warn("%zu model keys in the environment are not used: there are several tenants. Give "
                 "each its own credentials",
                 ignored);
    return 0;
}

static void set_up_children(struct parent *p)
{
    const struct parent_options *o = p->o;
    hosts_init(&p->hosts, &(struct hosts_options){.data_dir = o->data->path,
                                                  .short_dir = p->short_dir,
                                                  .runtime_dir = o->runtime_dir,
                                                  .harness_dir = o->harness_dir,
                                                  .separate = o->separate,
                                                  .first_uid = o->uid_base + 2,
                                                  .role_args = o->role_args});
    p->makers = makers_new(
        &(struct makers_options){.data_dir = o->data->path,
                                 .short_dir = p->short_dir,
                                 .control_dir = o->separate ? ROLE_ROOT "/data" : p->short_dir,
                                 .runtime_dir = o->runtime_dir,
                                 .provider = o->config.provider,
                                 .memory_mib = o->config.sandbox_memory_mib,
                                 .allow_unenforced = o->config.allow_unenforced,
                                 .control_uid = o->separate ? o->uid_base : geteuid(),
                                 .uid_ranges = o->separate,
                                 .role_args = o->role_args,
                                 .allow_images = o->config.allow_images,
                                 .allow_mount = o->config.allow_mount,
                                 .limit_memory = o->config.caps.limit_memory,
                                 .reply = sandbox_replied,
                                 .way_out = way_out_opened,
                                 .arg = p});
}

err parent_run(const struct parent_options *options)
{
    struct parent p = {
        .o = options,
        .broker = {.name = "broker", .peer = {.fd = -1}},
        .control = {.name = "control", .has_data = true, .peer = {.fd = -1}},
        .signals = -1,
    };
    TRY(data_short_path(options->data, p.short_dir, sizeof p.short_dir));
    TRY(take_signals(&p));
    err e = take_keys(&p);
    if (!e) {
        set_up_children(&p);
        start_child(&p, &p.broker);
        run_loop(&p);
        makers_free(p.makers);
        e = p.failed.e ? err_restore(&p.failed) : 0;
    }
    mem_free(p.keys);
    fd_close(&p.signals);
    return e;
}

/* POST /v1/sessions/:id/shell with Upgrade: a terminal in the session's sandbox. While it is open
   the sandbox is in use and is not stopped for being idle; so a terminal over which nothing goes
   for IDLE_MS is closed. It ends with its sandbox, and with the key it was opened with. */
#include "api/lasting.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/hands.h"
#include "sandbox/relay.h"
#include "session/manager.h"
#include "session/sandboxes.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define SHELLS_MAX 256 /* at once, a thread each */
#define SHELLS_OF_SESSION 16
#define OPENING_MS 30000
#define LINGER_MS 10000
#define IDLE_MS (30 * 60 * INT64_C(1000))

struct shell {
    struct shell *next; /* guarded by shells_lock, as long as it is counted */
    struct sandboxes *sandboxes;
    struct lastings *lastings;
    struct lasting lasting;
    const struct clock *clock;
    char session[ID_MAX], key_id[ID_MAX];
    int hands;
    bool started; /* a use of the sandbox is ours */
    struct http_upgraded *client;
};

static pthread_mutex_t shells_lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static struct shell *shells;

static err count_in(struct shell *s)
{
    AUTO_LOCK(&shells_lock);
    unsigned all = 0, of_session = 0;
    for (const struct shell *other = shells; other; other = other->next) {
        all++;
        of_session += strcmp(other->session, s->session) == 0;
    }
    if (all >= SHELLS_MAX || of_session >= SHELLS_OF_SESSION)
        return fail_as(E_QUOTA, "too_many_shells",
                       of_session >= SHELLS_OF_SESSION ? "this session has %d terminals already"
                                                       : "this service has %d terminals already",
                       of_session >= SHELLS_OF_SESSION ? SHELLS_OF_SESSION : SHELLS_MAX);
    s->next = shells;
    shells = s;
    return 0;
}

static void count_out(struct shell *s)
{
    AUTO_LOCK(&shells_lock);
    for (struct shell **at = &shells; *at; at = &(*at)->next) {
        if (*at != s)
            continue;
        *at = s->next;
        return;
    }
}

static void shell_free(void *arg)
{
    struct shell *s = arg;
    count_out(s);
    fd_close(&s->hands);
    if (s->started)
        sandboxes_release(s->sandboxes, s->session);
    mem_free(s);
}

static void *run(void *arg)
{
    struct shell *s = arg;
    const struct relay_options options = {
        .clock = s->clock, .opening_ms = OPENING_MS, .idle_ms = IDLE_MS, .linger_ms = LINGER_MS};
    log_bind(NULL, s->session);
    err e =
        relay_run(http_upgraded_fd(s->client), http_upgraded_early(s->client), s->hands, &options);
    log_info("a terminal was closed%s%s", e ? ": " : "", e ? err_text() : "");
    lasting_remove(s->lastings, &s->lasting);
    http_upgraded_close(s->client);
    shell_free(s);
    return NULL;
}

/* The key was revoked: to the relay it looks as if the client had left. */
static void on_revoked(void *arg)
{
    struct shell *s = arg;
    shutdown(http_upgraded_fd(s->client), SHUT_RDWR);
}

static void begin(void *state, struct http_upgraded *u)
{
    struct shell *s = state;
    s->client = u;
    lasting_add(s->lastings, &s->lasting, s->key_id, on_revoked, s);
    thread_start_detached("shell", run, s);
}

/* A sandbox that died unnoticed is started again, once. */
static err connect_hands(struct shell *s, const struct session_row *row)
{
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    for (int attempt = 0;; attempt++) {
        TRY(sandboxes_start(s->sandboxes, row->tenant, row->id, row->environment_json, socket,
                            &fresh));
        s->started = true;
        err e = hands_hello(socket, OPENING_MS);
        if (!e)
            return hands_connect(socket, &s->hands);
        if (fresh || attempt > 0)
            return e;
        sandboxes_forget(s->sandboxes, s->session);
        sandboxes_release(s->sandboxes, s->session);
        s->started = false;
    }
}

static err open_shell(struct ctx *ctx, struct shell *s, const struct session_row *row)
{
    TRY(count_in(s));
    TRY(connect_hands(s, row));
    log_info("a terminal was opened with the key %s", ctx->key_id);
    return reply_upgrade(ctx,
                         (struct http_takeover){.begin = begin, .dropped = shell_free, .state = s});
}

static err shell_post(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    if (row.sandbox_state == NULL || strcmp(row.sandbox_state, "none") == 0)
        return fail_as(E_CONFLICT, "no_sandbox",
                       "the session has no sandbox yet: it gets one with its first message");
    struct shell *s = mem_alloc(sizeof *s);
    s->sandboxes = session_manager_sandboxes(ctx->service->sessions);
    s->lastings = ctx->service->lastings;
    memcpy(s->key_id, ctx->key_id, sizeof s->key_id);
    s->clock = ctx->clock;
    s->hands = -1;
    snprintf(s->session, sizeof s->session, "%s", row.id);
    err e = open_shell(ctx, s, &row);
    if (e) {
        struct err_slot why;
        err_save(&why);
        shell_free(s);
        return err_restore(&why);
    }
    return 0;
}

ROUTES(shell,
       {POST, "/v1/sessions/:id/shell", shell_post, .scope = SCOPE_WRITE, .where = HTTP_LONG,
        .upgrade = "pi-shell"}, )

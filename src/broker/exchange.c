#include "broker/exchange_state.h"

#include "base/arena.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "broker/control.h"
#include "broker/fault.h"
#include "broker/protocol.h"
#include "broker/registry.h"

#include <stdio.h>
#include <strings.h>

#define GO_TIMEOUT_MS 30000
#define DIAL_TIMEOUT_MS 15000
/* All bodies held at once. One is bounded by EXCHANGE_BODY_MAX. */
#define SPOOL_MAX (512u << 20)

static pthread_mutex_t spool_lock = PTHREAD_MUTEX_INITIALIZER;
static size_t spool_used;

/* What the host sends */

struct exchange *model_exchange_new(const struct exchange_env *env, const char *target)
{
    struct exchange *x = mem_alloc(sizeof *x);
    x->env = env;
    x->arena = arena_new();
    x->host_fd = -1;
    x->first_ms = -1;
    x->begin_ms = exchange_now_ms();
    x->target = str_of(arena_strdup(x->arena, target));
    x->api = wire_of_target(x->target);
    return x;
}

/* The provider gets what the host sent, apart from these: whose key it is, is ours to say; identity
   encoding keeps the stream readable for the meter; curl frames the body anew. */
static bool is_ours(const char *name)
{
    static const char *const ours[] = {
        "authorization", "x-api-key", "x-goog-api-key", BROKER_TOKEN_HEADER, BROKER_SAID_HEADER,
        "host",          "expect",    "content-length", "accept-encoding",   "cookie",
    };
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcasecmp(name, ours[i]) == 0)
            return true;
    return false;
}

void model_exchange_header(struct exchange *x, const char *name, const char *value)
{
    if (strcasecmp(name, BROKER_TOKEN_HEADER) == 0)
        x->token = str_of(arena_strdup(x->arena, value));
    if (strcasecmp(name, BROKER_SAID_HEADER) == 0 &&
        (!str_to_u64(str_of(value), &x->said) || x->said > INT64_MAX))
        x->said = 0;
    if (strcasecmp(name, "connection") == 0)
        x->connection = arena_strdup(x->arena, value);
    if (is_ours(name))
        return;
    if (x->header_count == HEADERS_MAX) {
        x->too_many_headers = true;
        return;
    }
    x->headers[x->header_count++] =
        (struct upstream_header){arena_strdup(x->arena, name), arena_strdup(x->arena, value)};
}

static void drop_connection_headers(struct exchange *x)
{
    size_t kept = 0;
    for (size_t i = 0; i < x->header_count; i++)
        if (!header_is_hop_by_hop(x->headers[i].name, x->connection))
            x->headers[kept++] = x->headers[i];
    x->header_count = kept;
}

/* The host may put the real address's path before the API's, or leave it out. */
static struct str beneath_base(struct exchange *x)
{
    struct dial_url base;
    if (wire_target_allowed(x->api, x->target) ||
        dial_parse(str_of(x->base_url), x->arena, &base) != 0)
        return x->target;
    struct str prefix = str_of(base.path);
    while (prefix.n && prefix.p[prefix.n - 1] == '/')
        prefix.n--;
    if (!str_starts(x->target, prefix))
        return x->target;
    return (struct str){x->target.p + prefix.n, x->target.n - prefix.n};
}

/* Our own answer, in the provider's error shape. */
static void answer(struct exchange *x, int status, const char *code, const char *text)
{
    x->status = status;
    snprintf(x->error_code, sizeof x->error_code, "%s", code);
    snprintf(x->error_text, sizeof x->error_text, "%s", text);
    AUTO_JSON body = x->api->error_body(status, code, text);
    if (body == NULL)
        body = x->api->error_body(status, code, "the service refused this model request");
    buf_clear(&x->own);
    json_write(body, &x->own);
}

static void answer_problem(struct exchange *x, const char *code, const char *text)
{
    const struct fault *fault = fault_find(code);
    x->unrecoverable = fault->unrecoverable;
    answer(x, fault->host_status, fault->code, text);
}

static void admit(struct exchange *x, const char *method)
{
    if (x->registration == NULL || strcmp(x->registration->tenant, x->tenant) != 0) {
        answer(x, 401, "unknown_token", "this session is not known to the model gateway");
        return;
    }
    const char *api = NULL;
    if (credential_target(&x->env->credentials, x->registration, &x->base_url, &api) != 0) {
        answer_problem(x, err_code(), err_text());
        return;
    }
    const struct wire_api *row = wire_find(api);
    if (row == NULL) {
        answer_problem(x, "model_not_found", "the gateway does not speak this model's wire API");
        return;
    }
    x->api = row;
    struct str path = beneath_base(x);
    if (strcmp(method, "POST") != 0 || !wire_target_allowed(row, path)) {
        answer(x, 404, "not_a_model_request", "the model gateway serves model requests only");
        return;
    }
    x->path = path.p;
    if (x->too_many_headers)
        answer(x, 400, "model_bad_request", "the request has too many headers");
}

bool model_exchange_identify(struct exchange *x)
{
    x->registration = registry_await(x->env->registry, x->token, EXCHANGE_OVERTAKEN_MS);
    return x->registration != NULL;
}

void model_exchange_admit(struct exchange *x, const char *tenant, const char *method, int host_fd)
{
    x->host_fd = host_fd;
    snprintf(x->tenant, sizeof x->tenant, "%s", tenant);
    drop_connection_headers(x);
    admit(x, method);
}

static bool take_spool(struct exchange *x, size_t n)
{
    AUTO_LOCK(&spool_lock);
    if (spool_used + n > SPOOL_MAX)
        return false;
    spool_used += n;
    x->spooled += n;
    return true;
}

static void give_spool_back(struct exchange *x)
{
    buf_done(&x->body);
    AUTO_LOCK(&spool_lock);
    spool_used -= x->spooled;
    x->spooled = 0;
}

void model_exchange_body(struct exchange *x, struct str part)
{
    if (x->status)
        return; /* refused already: what still comes is not kept */
    if (x->body.n + part.n > EXCHANGE_BODY_MAX)
        answer(x, 413, "model_bad_request", "the request is larger than 64 MiB");
    else if (!take_spool(x, part.n))
        answer(x, 424, "model_unreachable", "the model gateway is busy with other large requests");
    if (x->status)
        give_spool_back(x);
    else
        buf_add_str(&x->body, part);
}

static void check_model(struct exchange *x)
{
    if (x->status == 0 &&
        !wire_names_model(x->api, str_of(x->path), buf_str(&x->body), x->registration->model))
        answer(x, 400, "model_bad_request", "the request is not for the model of its session");
}

static void close_upstream(struct exchange *x)
{
    if (x->request)
        request_set_upstream(x->request, -1);
    upstream_close(x->upstream);
    x->upstream = NULL;
}

/* The steps of a request; each leaves x->status when the answer is ours */

static void wait_for_go(struct exchange *x)
{
    struct request_refusal why;
    int64_t limit_ms = x->env->go_timeout_ms ? x->env->go_timeout_ms : GO_TIMEOUT_MS;
    err e = x->request ? 0 : exchange_begin(x);
    if (!e)
        e = request_wait(x->request, x->host_fd, limit_ms);
    if (e == E_CLOSED)
        x->aborted = true;
    if (e) {
        answer_problem(x, "model_unreachable",
                       "the service did not let this model request through; it may be overworked");
        return;
    }
    switch (request_state(x->request, &why)) {
    case REQUEST_REFUSED:
        x->unrecoverable = fault_is_unrecoverable(why.code);
        answer(x, why.status, why.code, why.detail);
        return;
    case REQUEST_CANCELLED:
        x->aborted = true;
        answer(x, 424, "cancelled", "the request was interrupted");
        return;
    default:
        x->go_ms = exchange_now_ms();
    }
}

static err dial(void *arg, int *out_fd)
{
    struct exchange *x = arg;
    int fd;
    TRY(dial_connect(x->env->guard, DIAL_MODEL, &x->url, DIAL_TIMEOUT_MS, x->request->wake_fd,
                     &fd));
    request_set_upstream(x->request, fd);
    *out_fd = fd;
    return 0;
}

/* On a connection that was kept, its peer judged again, or on a new one. */
static err connect_upstream(struct exchange *x, const struct upstream_options *options)
{
    AUTO_FD fd = -1;
    x->upstream = upstream_reopen(options);
    if (x->upstream) {
        int kept = upstream_fd(x->upstream);
        if (dial_peer_allowed(x->env->guard, DIAL_MODEL, &x->url, kept)) {
            request_set_upstream(x->request, kept);
            return 0;
        }
        upstream_close(x->upstream);
        x->upstream = NULL;
    }
    TRY(dial(x, &fd));
    return upstream_open(options, fd_take(&fd), &x->upstream);
}

static err open_upstream(struct exchange *x)
{
    const struct secret *key;
    /* beneath_base() takes prefixes away as often as they come; here the one true address is put
     * together. */
    struct str base = str_of(x->base_url);
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    const char *whole = arena_printf(x->arena, "%.*s%s", STR_ARG(base), x->path);
    if (dial_parse(str_of(whole), x->arena, &x->url) != 0) {
        struct err_slot why;
        err_save(&why);
        return fail_as(E_FORBIDDEN, "address_not_allowed", "%s", why.text);
    }
    TRY(credential_key(&x->env->credentials, x->registration, &x->url, &key));
    const struct registration *g = x->registration;
    struct wire_auth auth = wire_auth_of(x->api, g->custom ? "" : g->provider);
    struct upstream_options options = {
        .url = x->url,
        .headers = x->headers,
        .header_count = x->header_count,
        .auth_header = auth.header,
        .auth_prefix = auth.prefix,
        .key = key,
        .body = buf_str(&x->body),
        .host_fd = x->host_fd,
        .wake_fd = x->request->wake_fd,
        .idle_ms = x->env->idle_ms,
        .ca_file = x->env->ca_file,
        .pool = x->env->pool,
        .owner = x->tenant,
        .dial = dial,
        .dial_arg = x,
    };
    return connect_upstream(x, &options);
}

static bool has_type(const struct upstream *u, const char *wanted)
{
    const char *type = upstream_header(u, "content-type");
    return type && strncasecmp(type, wanted, strlen(wanted)) == 0;
}

/* Any text may hold events, whatever it is called; compressed or whole as JSON it is metered by
   size alone. */
static bool may_hold_events(const struct upstream *u)
{
    const char *encoding = upstream_header(u, "content-encoding");
    return !has_type(u, "application/json") &&
           (encoding == NULL || strcasecmp(encoding, "identity") == 0);
}

static int64_t content_length(const struct upstream *u)
{
    const char *text = upstream_header(u, "content-length");
    uint64_t n;
    return text && str_to_u64(str_of(text), &n) && n < INT64_MAX ? (int64_t)n : -1;
}

static void take_head(struct exchange *x, int status)
{
    x->status = status;
    x->left = status == 204 || status == 304 ? 0 : content_length(x->upstream);
    exchange_classify_status(x);
    if (x->error_code[0] == 0) {
        x->metering = true;
        x->event_stream = has_type(x->upstream, "text/event-stream");
        wire_meter_init(&x->meter, x->api);
        if (!may_hold_events(x->upstream))
            x->meter.api = NULL;
    }
}

static void own_answer(struct exchange *x, struct exchange_answer *out)
{
    x->answered_by_us = true;
    give_spool_back(x);
    exchange_report(x);
    x->own_headers[0] = (struct upstream_header){"Content-Type", "application/json"};
    /* The OpenAI and Anthropic SDKs heed it: retrying is decided elsewhere (R24). */
    x->own_headers[1] = (struct upstream_header){"x-should-retry", "false"};
    *out = (struct exchange_answer){.status = x->status,
                                    .headers = x->own_headers,
                                    .header_count = 2,
                                    .length = (int64_t)x->own.n};
}

/* No answer came, and there will be none. What was sent is metered before the status becomes ours.
 */
static void answer_failure(struct exchange *x)
{
    char code[ERR_CODE_MAX], text[ERROR_TEXT_MAX];
    snprintf(code, sizeof code, "%s", x->error_code);
    snprintf(text, sizeof text, "%s", x->error_text);
    if (x->aborted) {
        exchange_report(x);
        answer(x, 424, "cancelled", "the request was interrupted");
    } else {
        answer_problem(x, code, text);
    }
    close_upstream(x);
}

/* As it was before the attempt that failed. */
static void forget_attempt(struct exchange *x)
{
    close_upstream(x);
    buf_clear(&x->ahead);
    x->status = 0;
    x->unrecoverable = false;
    x->error_code[0] = x->error_text[0] = 0;
    x->go_ms = 0;
}

/* §12.5: the credential may be another one since the host began to ask. */
static void renew_registration(struct exchange *x)
{
    struct registration *now = registry_find(x->env->registry, x->token);
    const char *api;
    if (now == NULL)
        return; /* the session closes: what was begun may end */
    if (strcmp(now->tenant, x->tenant) != 0 ||
        credential_target(&x->env->credentials, now, &x->base_url, &api) != 0) {
        registration_unref(now);
        return;
    }
    registration_unref(x->registration);
    x->registration = now;
}

/* R24: asks the provider once. True: it failed before anything went to the host, and control is to
   say whether there is another attempt. */
static bool attempt(struct exchange *x)
{
    int status = 0;
    int64_t retry_after_ms = -1;
    renew_registration(x);
    err e = open_upstream(x);
    if (!e)
        e = upstream_head(x->upstream, &status);
    if (e) {
        exchange_note_failure(x, e);
        if (x->aborted || fault_find(x->error_code)->unrecoverable) {
            answer_failure(x);
            return false;
        }
    } else {
        take_head(x, status);
        if (x->metering || x->unrecoverable || !exchange_read_ahead(x, &retry_after_ms))
            return false;
    }
    exchange_report_attempt(x, retry_after_ms);
    forget_attempt(x);
    return true;
}

/* Relaying */

static void follow(struct exchange *x, struct str part)
{
    if (x->metering && x->meter.api) {
        wire_meter_feed(&x->meter, part);
    } else if (x->metering) {
        x->meter.started = true;
        x->meter.produced_bytes += part.n;
    } else if (x->own.n < ERROR_BODY_MAX) {
        size_t room = ERROR_BODY_MAX - x->own.n;
        buf_add(&x->own, part.p, part.n < room ? part.n : room);
    }
    if (x->first_ms < 0 && x->meter.started)
        x->first_ms = exchange_now_ms();
}

/* The upstream stays: the answer's headers are its. */
static void finish(struct exchange *x)
{
    request_set_upstream(x->request, -1);
    exchange_judge_answer(x);
    exchange_report(x);
}

void model_exchange_run(struct exchange *x, struct exchange_answer *out)
{
    bool again = true;
    check_model(x);
    while (again && x->status == 0) {
        wait_for_go(x);
        again = x->status == 0 && attempt(x);
    }
    if (x->upstream == NULL) {
        own_answer(x, out);
        return;
    }
    out->status = x->status;
    out->headers = upstream_headers(x->upstream, &out->header_count);
    out->length = x->left;
    if (x->left == 0)
        finish(x); /* nobody will ask for a body */
}

static size_t read_own(struct exchange *x, char *p, size_t cap)
{
    size_t n = x->own.n - x->own_at;
    if (n > cap)
        n = cap;
    memcpy(p, x->own.p + x->own_at, n);
    x->own_at += n;
    return n;
}

static err read_provider(struct exchange *x, char *p, size_t cap, size_t *out_n)
{
    size_t n = x->ahead.n - x->ahead_at;
    if (n == 0)
        return upstream_read(x->upstream, p, cap, out_n);
    *out_n = n < cap ? n : cap;
    memcpy(p, x->ahead.p + x->ahead_at, *out_n);
    x->ahead_at += *out_n;
    return 0;
}

err model_exchange_read(struct exchange *x, char *p, size_t cap, size_t *out_n)
{
    if (x->answered_by_us || x->reported) {
        *out_n = x->answered_by_us ? read_own(x, p, cap) : 0;
        return 0;
    }
    err e = read_provider(x, p, cap, out_n);
    if (e) {
        exchange_note_failure(x, e);
        exchange_report(x);
        close_upstream(x);
        give_spool_back(x);
        return e;
    }
    follow(x, (struct str){p, *out_n});
    if (x->left >= 0)
        x->left -= (int64_t)*out_n;
    if (*out_n == 0 || x->left == 0) /* nobody asks again when the length was known */
        finish(x);
    return 0;
}

void model_exchange_free(struct exchange *x)
{
    if (x == NULL)
        return;
    if (x->request && !x->reported) {
        exchange_note_failure(x, E_CLOSED);
        exchange_report(x);
    }
    close_upstream(x);
    give_spool_back(x);
    wire_meter_done(&x->meter);
    request_free(x->request);
    registration_unref(x->registration);
    buf_done(&x->own);
    buf_done(&x->ahead);
    arena_free(x->arena);
    mem_free(x);
}

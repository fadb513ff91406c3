#include "broker/gateway.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "broker/exchange.h"

#include <microhttpd.h>
#include <stdio.h>
#include <strings.h>

/* A host works for many sessions; each request under way is a connection and a thread. */
#define CONNECTIONS_MAX 512
#define CONNECTION_MEMORY (64u << 10)
#define THREAD_STACK (512u << 10)
#define KEEP_ALIVE_S 600
#define READ_BLOCK (16u << 10)

struct gateway {
    struct gateway *next;
    struct gateways *owner;
    uint32_t host;
    char tenant[ID_MAX]; /* guarded by the owner's lock: a spare host gets it later */
    struct MHD_Daemon *daemon;
};

struct gateways {
    const struct exchange_env *env;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ended, bound;
    struct gateway *first;
    unsigned ending; /* gateways being stopped in the background */
};

/* One request of a connection, made when its request line is known. */
struct call {
    struct exchange *exchange;
    bool admitted;
};

static void *on_request_line(void *arg, const char *target, struct MHD_Connection *connection)
{
    struct gateway *gateway = arg;
    (void)connection;
    struct call *call = mem_alloc(sizeof *call);
    call->exchange = model_exchange_new(gateway->owner->env, target);
    return call;
}

/* "" for a spare host's. Who is known (a session is open in that host) had a tenant before: the
   parent's word of it may still be on its way. */
static void read_tenant(struct gateway *gateway, bool known, char out[ID_MAX])
{
    struct gateways *g = gateway->owner;
    int64_t deadline = clock_monotonic_ms(clock_real()) + (known ? EXCHANGE_OVERTAKEN_MS : 0);
    AUTO_LOCK(&g->lock);
    for (int64_t left; gateway->tenant[0] == 0;) {
        left = deadline - clock_monotonic_ms(clock_real());
        if (left <= 0)
            break;
        cond_wait_ms(&g->bound, &g->lock, left);
    }
    memcpy(out, gateway->tenant, ID_MAX);
}

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    (void)kind;
    model_exchange_header(arg, name, value ? value : "");
    return MHD_YES;
}

static int socket_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? info->connect_fd : -1;
}

static void admit(struct gateway *gateway, struct call *call, struct MHD_Connection *connection,
                  const char *method)
{
    char tenant[ID_MAX];
    MHD_get_connection_values(connection, MHD_HEADER_KIND, on_header, call->exchange);
    read_tenant(gateway, model_exchange_identify(call->exchange), tenant);
    model_exchange_admit(call->exchange, tenant, method, socket_of(connection));
}

static ssize_t on_read(void *arg, uint64_t position, char *p, size_t cap)
{
    (void)position;
    size_t n = 0;
    if (model_exchange_read(arg, p, cap, &n) != 0)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    return n ? (ssize_t)n : MHD_CONTENT_READER_END_OF_STREAM;
}

static const char *connection_header(const struct exchange_answer *answer)
{
    for (size_t i = 0; i < answer->header_count; i++)
        if (strcasecmp(answer->headers[i].name, "connection") == 0)
            return answer->headers[i].value;
    return NULL;
}

static enum MHD_Result send_answer(struct MHD_Connection *connection, struct exchange *exchange,
                                   const struct exchange_answer *answer)
{
    uint64_t length = answer->length < 0 ? MHD_SIZE_UNKNOWN : (uint64_t)answer->length;
    struct MHD_Response *response =
        MHD_create_response_from_callback(length, READ_BLOCK, on_read, exchange, NULL);
    if (response == NULL)
        return MHD_NO;
    const char *hops = connection_header(answer);
    for (size_t i = 0; i < answer->header_count; i++) {
        const struct upstream_header *h = &answer->headers[i];
        if (!header_is_hop_by_hop(h->name, hops) && strcasecmp(h->name, "content-length") != 0)
            MHD_add_response_header(response, h->name, h->value);
    }
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)answer->status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *part,
                                  size_t *part_n, void **state)
{
    struct call *call = *state;
    (void)url;
    (void)version;
    if (!call->admitted) {
        call->admitted = true;
        admit(arg, call, connection, method);
        return MHD_YES;
    }
    if (*part_n) {
        model_exchange_body(call->exchange, (struct str){part, *part_n});
        *part_n = 0;
        return MHD_YES;
    }
    struct exchange_answer answer;
    model_exchange_run(call->exchange, &answer);
    return send_answer(connection, call->exchange, &answer);
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode why)
{
    struct call *call = *state;
    (void)arg;
    (void)connection;
    (void)why;
    if (call == NULL)
        return;
    model_exchange_free(call->exchange);
    mem_free(call);
    *state = NULL;
}

static void on_log(void *arg, const char *fmt, va_list ap)
{
    (void)arg;
    char text[256];
    vsnprintf(text, sizeof text, fmt, ap);
    log_debug("gateway: %s", text);
}

struct gateways *gateways_new(const struct exchange_env *env)
{
    struct gateways *g = mem_alloc(sizeof *g);
    g->env = env;
    pthread_mutex_init(&g->lock, NULL);
    cond_init(&g->ended);
    cond_init(&g->bound);
    return g;
}

static struct MHD_Daemon *start(struct gateway *gateway, int listen_fd)
{
    return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD |
                                MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG,
                            0, NULL, NULL, on_request, gateway, MHD_OPTION_LISTEN_SOCKET, listen_fd,
                            MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_URI_LOG_CALLBACK,
                            on_request_line, gateway, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                            NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
                            MHD_OPTION_THREAD_STACK_SIZE, (size_t)THREAD_STACK,
                            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)KEEP_ALIVE_S,
#if MHD_VERSION >= 0x01000000
                            MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#else
                            MHD_OPTION_STRICT_FOR_CLIENT, 1,
#endif
                            MHD_OPTION_END);
}

err gateways_open(struct gateways *g, uint32_t host, const char *tenant, int take_listen_fd)
{
    struct gateway *gateway = mem_alloc(sizeof *gateway);
    *gateway = (struct gateway){.owner = g, .host = host};
    snprintf(gateway->tenant, sizeof gateway->tenant, "%s", tenant);
    gateway->daemon = start(gateway, take_listen_fd);
    if (gateway->daemon == NULL) {
        fd_close(&take_listen_fd);
        mem_free(gateway);
        return fail(E_INTERNAL, "the model gateway of host %u could not be started", host);
    }
    AUTO_LOCK(&g->lock);
    gateway->next = g->first;
    g->first = gateway;
    return 0;
}

err gateways_bind(struct gateways *g, uint32_t host, const char *tenant)
{
    AUTO_LOCK(&g->lock);
    for (struct gateway *at = g->first; at; at = at->next) {
        if (at->host != host)
            continue;
        snprintf(at->tenant, sizeof at->tenant, "%s", tenant);
        pthread_cond_broadcast(&g->bound);
        return 0;
    }
    return fail(E_NOT_FOUND, "there is no model gateway of host %u", host);
}

/* Stopping closes each connection's socket, which its thread takes for the host's hang-up. */
static void *stop(void *arg)
{
    struct gateway *gateway = arg;
    struct gateways *g = gateway->owner;
    MHD_stop_daemon(gateway->daemon);
    mem_free(gateway);
    AUTO_LOCK(&g->lock);
    g->ending--;
    pthread_cond_broadcast(&g->ended);
    return NULL;
}

static struct gateway *take_out(struct gateways *g, struct gateway **at)
{
    struct gateway *gateway = *at;
    if (gateway) {
        *at = gateway->next;
        g->ending++;
    }
    return gateway;
}

void gateways_close(struct gateways *g, uint32_t host)
{
    struct gateway *gateway;
    {
        AUTO_LOCK(&g->lock);
        struct gateway **at = &g->first;
        while (*at && (*at)->host != host)
            at = &(*at)->next;
        gateway = take_out(g, at);
    }
    if (gateway)
        thread_start_detached("gateway-stop", stop, gateway);
}

void gateways_free(struct gateways *g)
{
    if (g == NULL)
        return;
    for (;;) {
        struct gateway *gateway;
        {
            AUTO_LOCK(&g->lock);
            gateway = take_out(g, &g->first);
        }
        if (gateway == NULL)
            break;
        stop(gateway);
    }
    {
        AUTO_LOCK(&g->lock);
        while (g->ending)
            cond_wait_ms(&g->ended, &g->lock, 1000);
    }
    pthread_mutex_destroy(&g->lock);
    mem_free(g);
}

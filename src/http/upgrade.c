/* Connections that stop being HTTP (Connection: Upgrade): after the 101 their bytes belong to a
   handler's own thread, until it gives them back. The exchange lives as long. */
#include "http/server.h"

#include "base/fd.h"
#include "base/mem.h"
#include "http/exchange.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <sys/socket.h>

#define UPGRADED_MAGIC 0x55504752u

struct http_upgraded {
    unsigned magic;
    struct http_server *server;
    struct http_takeover takeover;
    /* Once it began: */
    struct MHD_UpgradeResponseHandle *handle;
    struct MHD_Connection *connection;
    int fd; /* the library's */
    struct buf early;
    struct http_upgraded *prev, *next; /* server->upgraded; guarded by streams_lock */
};

err reply_upgrade(struct ctx *ctx, struct http_takeover takeover)
{
    struct http_exchange *x = ctx->exchange;
    CHECK(x, EXCHANGE_MAGIC);
    struct http_upgraded *u = mem_alloc(sizeof *u);
    *u = (struct http_upgraded){
        .magic = UPGRADED_MAGIC, .server = x->server, .takeover = takeover, .fd = -1};
    reply_header(ctx, "Upgrade", ctx->route->upgrade);
    TRY(reply_empty(ctx, MHD_HTTP_SWITCHING_PROTOCOLS));
    x->reply.upgraded = u;
    return 0;
}

void http_upgraded_drop(struct http_upgraded *u)
{
    CHECK(u, UPGRADED_MAGIC);
    u->takeover.dropped(u->takeover.state);
    u->magic = 0;
    mem_free(u);
}

static void add_to_list(struct http_upgraded *u)
{
    struct http_server *server = u->server;
    AUTO_LOCK(&server->streams_lock);
    u->next = server->upgraded;
    if (u->next)
        u->next->prev = u;
    server->upgraded = u;
    if (server->stopping)
        shutdown(u->fd, SHUT_RDWR); /* its thread will notice */
}

/* Loop thread. */
static void on_upgraded(void *arg, struct MHD_Connection *connection, void *request,
                        const char *early, size_t early_n, MHD_socket fd,
                        struct MHD_UpgradeResponseHandle *handle)
{
    struct http_upgraded *u = arg;
    struct http_exchange *x = request;
    CHECK(u, UPGRADED_MAGIC);
    x->reply.upgraded = NULL; /* its own owner from here on */
    u->handle = handle;
    u->connection = connection;
    u->fd = fd;
    buf_add(&u->early, early, early_n);
    add_to_list(u);
    u->takeover.begin(u->takeover.state, u);
}

struct MHD_Response *upgrade_response(struct http_upgraded *u)
{
    return MHD_create_response_for_upgrade(on_upgraded, u);
}

int http_upgraded_fd(const struct http_upgraded *u)
{
    CHECK(u, UPGRADED_MAGIC);
    return u->fd;
}

struct str http_upgraded_early(const struct http_upgraded *u)
{
    CHECK(u, UPGRADED_MAGIC);
    return buf_str(&u->early);
}

/* Through TLS the library carries bytes between two sockets, and having sent what there is it would
   wait for the client to leave. A second descriptor of the client's socket, to make it look as if
   it had; -1 if that is not needed, or cannot be had (then it is up to the client). */
static int client_fd(const struct http_upgraded *u)
{
    if (u->server->options.tls_cert_pem == NULL)
        return -1;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(u->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info ? fcntl(info->connect_fd, F_DUPFD_CLOEXEC, 0) : -1;
}

void http_upgraded_close(struct http_upgraded *u)
{
    CHECK(u, UPGRADED_MAGIC);
    struct http_server *server = u->server;
    AUTO_LOCK(&server->streams_lock);
    if (u->prev)
        u->prev->next = u->next;
    else
        server->upgraded = u->next;
    if (u->next)
        u->next->prev = u->prev;
    int client = client_fd(u);
    MHD_upgrade_action(u->handle, MHD_UPGRADE_ACTION_CLOSE);
    /* Only now: while the library still reads, an end makes it drop what it has not sent yet. */
    if (client >= 0)
        shutdown(client, SHUT_RD);
    fd_close(&client);
    pthread_cond_broadcast(&server->upgraded_fewer);
    buf_done(&u->early);
    u->magic = 0;
    mem_free(u);
}

void upgrades_end(struct http_server *server)
{
    AUTO_LOCK(&server->streams_lock);
    for (struct http_upgraded *u = server->upgraded; u; u = u->next)
        shutdown(u->fd, SHUT_RDWR);
}

void upgrades_wait(struct http_server *server)
{
    AUTO_LOCK(&server->streams_lock);
    while (server->upgraded)
        cond_wait_ms(&server->upgraded_fewer, &server->streams_lock, 1000);
}

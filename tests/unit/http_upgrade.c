/* Connections that left HTTP: all that was said arrives, whoever leaves first, with and without
   TLS. */
#include "http_raw.h"
#include "http_tls.h"

#include "base/lock.h"

#include <openssl/ssl.h>

#define WORD 1
#define SAID 4096
#define ROUNDS 400
#define CLIENTS 4

static uint16_t port;
static struct http_server *server;
static char *certificate, *key;
static bool impatient; /* the server does not wait for the client to leave */

/* ---- the server's side ---- */

static bool wait_for(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, RAW_WAIT_MS) == 1;
}

static void say_all(int fd)
{
    char part[1024];
    memset(part, WORD, sizeof part);
    for (size_t left = SAID; left > 0;) {
        size_t n = left < sizeof part ? left : sizeof part;
        ssize_t sent = send(fd, part, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0)
            left -= (size_t)sent;
        else if (!wait_for(fd, POLLOUT))
            return; /* too little said, which the client notices */
    }
}

static void *talk(void *arg)
{
    struct http_upgraded *u = arg;
    int fd = http_upgraded_fd(u);
    say_all(fd);
    shutdown(fd, SHUT_WR);
    if (!impatient)
        wait_for(fd, POLLIN);
    http_upgraded_close(u);
    return NULL;
}

static void begin(void *state, struct http_upgraded *u)
{
    (void)state;
    thread_start_detached("talk", talk, u);
}

static void dropped(void *state)
{
    (void)state;
}

static err leave_http(struct ctx *ctx)
{
    return reply_upgrade(ctx, (struct http_takeover){.begin = begin, .dropped = dropped});
}

static err authenticate(struct service *service, struct str token, struct http_auth *out)
{
    (void)service, (void)token;
    out->scope = SCOPE_WRITE;
    return 0;
}

static const struct route table[] = {
    {POST, "/talk", leave_http, .scope = SCOPE_NONE, .upgrade = "talk"}, {0}};
static const struct route *const tables[] = {table, NULL};

static void start_server(bool tls)
{
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .tls_cert_pem = tls ? certificate : NULL,
                             .tls_key_pem = tls ? key : NULL,
                             .authenticate = authenticate};
    assert_int_equal(http_start(&o, &server), 0);
}

/* ---- the client's side ---- */

#define REQUEST "POST /talk HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n"

struct client {
    pthread_t thread;
    bool tls;
    unsigned cut; /* rounds in which something was missing */
};

static int receive(SSL *ssl, int fd, char *out, int size)
{
    return ssl ? SSL_read(ssl, out, size) : (int)recv(fd, out, (size_t)size, 0);
}

/* How much of it came. A client leaves when it has all, or when nothing else comes. */
static size_t hear_out(SSL *ssl, int fd)
{
    char part[SAID];
    size_t said = 0;
    for (int n; said < SAID && (n = receive(ssl, fd, part, sizeof part)) > 0;)
        for (int i = 0; i < n; i++)
            said += part[i] == WORD; /* not so the head of the 101 */
    return said;
}

static size_t one_round(SSL_CTX *tls)
{
    struct raw_client c = raw_connect(port);
    SSL *ssl = NULL;
    if (tls) {
        ssl = SSL_new(tls);
        SSL_set_fd(ssl, c.fd);
        if (SSL_connect(ssl) == 1)
            SSL_write(ssl, REQUEST, sizeof REQUEST - 1);
    } else
        raw_say(&c, REQUEST);
    size_t n = hear_out(ssl, c.fd);
    SSL_free(ssl);
    raw_close(&c);
    return n;
}

static void *many_rounds(void *arg)
{
    struct client *client = arg;
    SSL_CTX *tls = client->tls ? SSL_CTX_new(TLS_client_method()) : NULL;
    for (unsigned i = 0; i < ROUNDS / CLIENTS; i++)
        client->cut += one_round(tls) < SAID;
    SSL_CTX_free(tls);
    return NULL;
}

static void expect_all_of_it(bool tls)
{
    struct client clients[CLIENTS] = {0};
    start_server(tls);
    for (size_t i = 0; i < CLIENTS; i++) {
        clients[i].tls = tls;
        clients[i].thread = thread_start("client", many_rounds, &clients[i]);
    }
    unsigned cut = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        pthread_join(clients[i].thread, NULL);
        cut += clients[i].cut;
    }
    assert_int_equal(cut, 0);
    http_stop(server, 1000);
}

static void all_arrives_at_a_client_that_leaves_first(void **state)
{
    (void)state;
    impatient = false;
    expect_all_of_it(false);
}

static void all_arrives_at_one_that_leaves_first_through_tls(void **state)
{
    (void)state;
    impatient = false;
    expect_all_of_it(true);
}

static void all_arrives_through_tls_though_the_server_leaves_first(void **state)
{
    (void)state;
    impatient = true;
    expect_all_of_it(true);
}

int main(void)
{
    tls_make_certificate(&certificate, &key);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_arrives_at_a_client_that_leaves_first),
        cmocka_unit_test(all_arrives_at_one_that_leaves_first_through_tls),
        cmocka_unit_test(all_arrives_through_tls_though_the_server_leaves_first),
    };
    int failed = cmocka_run_group_tests_name("http_upgrade", tests, NULL, NULL);
    free(certificate);
    free(key);
    return failed;
}

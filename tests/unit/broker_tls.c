/* src/broker/upstream.c over TLS: the certificate is checked against the host's name, on the
   connection that the dial guard made. The server and its certificates are made here. */
#include "base/arena.h"
#include "base/fd.h"
#include "base/lock.h"
#include "broker/upstream.h"
#include "broker/upstream_pool.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

struct server {
    int listen_fd, port;
    pthread_t thread;
    EVP_PKEY *key;
    X509 *certificate;
    char ca_file[64];
    char request[4096]; /* the newest */
    int rounds;         /* how many requests it answers before it hangs up */
    int answered;       /* read once the thread is joined */
};

static void make_certificate(struct server *s, const char *name)
{
    char alt[128];
    snprintf(alt, sizeof alt, "DNS:%s", name);
    s->key = EVP_EC_gen("P-256");
    s->certificate = X509_new();
    X509_set_version(s->certificate, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(s->certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(s->certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(s->certificate), 3600);
    X509_set_pubkey(s->certificate, s->key);
    X509_NAME *subject = X509_get_subject_name(s->certificate);
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(s->certificate, subject);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, alt);
    assert_non_null(extension);
    X509_add_ext(s->certificate, extension, -1);
    X509_EXTENSION_free(extension);
    assert_true(X509_sign(s->certificate, s->key, EVP_sha256()) > 0);
    snprintf(s->ca_file, sizeof s->ca_file, "/tmp/pm-tls-XXXXXX");
    AUTO_FD fd = mkstemp(s->ca_file);
    FILE *f = fdopen(fd_take(&fd), "w");
    PEM_write_X509(f, s->certificate);
    fclose(f);
}

static void *serve(void *arg)
{
    struct server *s = arg;
    AUTO_FD fd = accept(s->listen_fd, NULL, NULL);
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    SSL_CTX_use_certificate(context, s->certificate);
    SSL_CTX_use_PrivateKey(context, s->key);
    SSL *ssl = SSL_new(context);
    SSL_set_fd(ssl, fd);
    bool open = SSL_accept(ssl) == 1;
    for (int i = 0; open && i < s->rounds; i++) {
        static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        int n = SSL_read(ssl, s->request, sizeof s->request - 1);
        open = n > 0;
        s->request[open ? n : 0] = 0;
        if (open)
            s->answered += SSL_write(ssl, reply, sizeof reply - 1) > 0;
    }
    if (open)
        SSL_shutdown(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
    return NULL;
}

static void server_start(struct server *s, const char *name, int rounds)
{
    *s = (struct server){.rounds = rounds};
    make_certificate(s, name);
    s->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    assert_int_equal(bind(s->listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(s->listen_fd, 1), 0);
    getsockname(s->listen_fd, (struct sockaddr *)&a, &n);
    s->port = ntohs(a.sin_port);
    s->thread = thread_start("server", serve, s);
}

static void server_stop(struct server *s)
{
    pthread_join(s->thread, NULL);
    fd_close(&s->listen_fd);
    X509_free(s->certificate);
    EVP_PKEY_free(s->key);
    unlink(s->ca_file);
}

static err connect_to(struct server *s, int *out_fd)
{
    struct dial_guard *g;
    struct dial_url there = {"http", "127.0.0.1", s->port, "/"};
    assert_int_equal(dial_guard_new("127.0.0.1", &g), 0);
    err e = dial_connect(g, DIAL_MODEL, &there, 5000, -1, out_fd);
    dial_guard_free(g);
    return e;
}

static err dial_again(void *arg, int *out_fd)
{
    return connect_to(arg, out_fd);
}

/* Reads an answer to its end. */
static err read_answer(struct upstream *u, char *body, size_t cap)
{
    int status = 0;
    size_t n = 0, more = 1;
    err e = upstream_head(u, &status);
    while (!e && more > 0) {
        e = upstream_read(u, body + n, cap - 1 - n, &more);
        n += e ? 0 : more;
    }
    body[n] = 0;
    return e;
}

/* Asks https://models.test/x on a connection to the server, or on one that the pool kept. */
static err ask(struct server *s, const char *ca_file, struct upstream_pool *pool, char *body,
               size_t cap)
{
    int pair[2], fd = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    AUTO_FD host = pair[0], peer = pair[1];
    AUTO_FD wake = eventfd(0, EFD_CLOEXEC);
    AUTO_SECRET key = secret_new(STR("the-key"));
    struct upstream_options options = {.url = {"https", "models.test", 443, "/x"},
                                       .auth_header = "Authorization",
                                       .auth_prefix = "Bearer ",
                                       .key = key,
                                       .body = STR("{}"),
                                       .host_fd = host,
                                       .wake_fd = wake,
                                       .ca_file = ca_file,
                                       .pool = pool,
                                       .owner = "tenant_a",
                                       .dial = dial_again,
                                       .dial_arg = s};
    (void)peer;
    struct upstream *u = upstream_reopen(&options);
    if (u == NULL) {
        assert_int_equal(connect_to(s, &fd), 0);
        assert_int_equal(upstream_open(&options, fd, &u), 0);
    }
    err e = read_answer(u, body, cap);
    upstream_close(u);
    return e;
}

static void a_good_certificate_is_spoken_to(void **state)
{
    (void)state;
    struct server s;
    char body[16];
    server_start(&s, "models.test", 1);
    assert_int_equal(ask(&s, s.ca_file, NULL, body, sizeof body), 0);
    server_stop(&s);
    assert_string_equal(body, "ok");
    assert_non_null(strstr(s.request, "POST /x HTTP/1.1\r\nHost: models.test\r\n"));
    assert_non_null(strstr(s.request, "Authorization: Bearer the-key\r\n"));
}

static void a_kept_connection_needs_no_second_handshake(void **state)
{
    (void)state;
    struct server s;
    char body[16];
    server_start(&s, "models.test", 3); /* it accepts one connection only */
    struct upstream_pool *pool = upstream_pool_new();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(&s, s.ca_file, pool, body, sizeof body), 0);
        assert_string_equal(body, "ok");
    }
    upstream_pool_free(pool);
    server_stop(&s);
    assert_int_equal(s.answered, 3);
}

/* Who else may use a connection is decided by its key. */
static void a_kept_connection_is_its_tenants(void **state)
{
    (void)state;
    struct upstream_pool *pool = upstream_pool_new();
    int pair[2], fd = -1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    CURLM *multi = curl_multi_init();
    upstream_pool_give(pool, "tenant_a https://models.test:443", multi, pair[0]);
    assert_null(upstream_pool_take(pool, "tenant_b https://models.test:443", &fd));
    assert_null(upstream_pool_take(pool, "tenant_a https://models.test:444", &fd));
    assert_ptr_equal(upstream_pool_take(pool, "tenant_a https://models.test:443", &fd), multi);
    assert_int_equal(fd, pair[0]);
    assert_null(upstream_pool_take(pool, "tenant_a https://models.test:443", &fd));
    upstream_pool_give(pool, "k", multi, pair[0]);
    assert_int_equal(write(pair[1], "x", 1), 1); /* something came that nobody asked for */
    assert_null(upstream_pool_take(pool, "k", &fd));
    upstream_pool_free(pool);
    close(pair[0]);
    close(pair[1]);
}

static void expect_refused(struct server *s, const char *ca_file)
{
    char body[16];
    assert_int_equal(ask(s, ca_file, NULL, body, sizeof body), E_UNAVAILABLE);
    assert_string_equal(err_code(), "model_unreachable");
    assert_string_equal(err_text(), "the TLS certificate of models.test could not be verified");
    server_stop(s);
    assert_string_equal(s->request, ""); /* no key went out */
}

static void another_hosts_certificate_is_refused(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, "evil.test", 1);
    expect_refused(&s, s.ca_file);
}

static void an_untrusted_certificate_is_refused(void **state)
{
    (void)state;
    struct server s;
    server_start(&s, "models.test", 1);
    expect_refused(&s, NULL);
}

static int once(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return curl_global_init(CURL_GLOBAL_DEFAULT) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_certificate_is_spoken_to),
        cmocka_unit_test(a_kept_connection_needs_no_second_handshake),
        cmocka_unit_test(a_kept_connection_is_its_tenants),
        cmocka_unit_test(another_hosts_certificate_is_refused),
        cmocka_unit_test(an_untrusted_certificate_is_refused),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}

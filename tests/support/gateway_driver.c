/* The model gateway alone, for tests and benchmarks from outside: one session with a custom
   provider, control's part played here (every request may go at once).

     gateway_driver SOCKET BASE_URL API MODEL TENANT KEY [CA_FILE]

   listens on the unix socket SOCKET; the session's token is 64 times 'a'. Standard output: "ready",
   then each request_end as a line of JSON. Standard input: "state" gives {"fds", "heap", "rss"}
   (bytes in use), its end ends the program. */
#include "base/arena.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/mem.h"
#include "broker/control.h"
#include "broker/dial.h"
#include "broker/exchange.h"
#include "broker/gateway.h"
#include "broker/link.h"
#include "broker/registry.h"
#include "broker/requests.h"
#include "broker/upstream_pool.h"

#include <curl/curl.h>
#include <dirent.h>
#include <malloc.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define LINE_MAX_BYTES 64
#define REGISTERED_MS 20000

struct driver {
    const char *base_url, *api, *model, *tenant, *key;
    char session[ID_MAX], token[65];
    struct exchange_env env;
    struct dial_guard *guard;
    struct broker_link *link;
    pthread_mutex_t output; /* keeps lines whole */
};

static void must(err e, const char *what)
{
    if (e) {
        fprintf(stderr, "gateway_driver: %s: %s\n", what, err_text());
        exit(1);
    }
}

static void print_line(struct driver *d, const json_t *j)
{
    AUTO_BUF text = {0};
    json_write(j, &text);
    AUTO_LOCK(&d->output);
    printf("%s\n", text.p);
    fflush(stdout);
}

/* What the parent would find in the sealed credential. */
static err open_box(void *arg, const char *session, struct str sealed, struct secret **out)
{
    struct driver *d = arg;
    (void)session;
    (void)sealed;
    AUTO_BUF text = {0};
    AUTO_JSON box =
        json_pack("{s:s, s:s, s:s, s:s, s:s}", "tenant", d->tenant, "id", "cred_1", "kind",
                  "model_provider_key", "origin", d->base_url, "secret", d->key);
    json_write(box, &text);
    *out = secret_new(buf_str(&text));
    return 0;
}

static void on_begin(void *arg, const char *session, const char *request, int64_t input_tokens,
                     int64_t said)
{
    struct driver *d = arg;
    (void)session;
    (void)input_tokens;
    (void)said;
    broker_request_go(d->link, request, 1);
}

static void on_end(void *arg, const char *session, const char *request, const json_t *end)
{
    struct driver *d = arg;
    (void)session;
    print_line(d, end);
    if (json_get_bool(end, "holding", false))
        broker_request_refuse(d->link, request, 424, "retries_exhausted", "no other attempt");
}

static void on_lost(void *arg)
{
    (void)arg;
}

static int listen_on(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 512) < 0)
        must(fail_errno("%s", path), "listen");
    return fd;
}

static void start(struct driver *d)
{
    AUTO_ARENA a = arena_new();
    struct dial_url u;
    int pair[2];
    must(dial_parse(str_of(d->base_url), a, &u), "BASE_URL");
    must(dial_guard_new(arena_printf(a, "%s:%d", u.host, u.port), &d->guard), "guard");
    id_new("sess", 0, d->session);
    memset(d->token, 'a', 64);
    d->env.registry = registry_new();
    d->env.requests = request_table_new();
    d->env.control = control_new(d->env.registry, d->env.requests);
    d->env.guard = d->guard;
    d->env.pool = upstream_pool_new();
    d->env.credentials = (struct credential_source){.open = open_box, .arg = d};
    struct broker_events events = {
        .request_begin = on_begin, .request_end = on_end, .lost = on_lost, .arg = d};
    d->link = broker_link_new(&events);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        must(fail_errno("socketpair"), "link");
    control_attach(d->env.control, pair[0]);
    broker_link_attach(d->link, pair[1]);
    struct broker_session session = {.token = d->token,
                                     .tenant = d->tenant,
                                     .session = d->session,
                                     .provider = "driven",
                                     .model = d->model,
                                     .api = d->api,
                                     .base_url = d->base_url,
                                     .custom = true,
                                     .sealed = STR("sealed")};
    broker_open_session(d->link, &session);
    must(registry_await_count(d->env.registry, 1, REGISTERED_MS)
             ? 0
             : fail(E_IO, "not registered within %d ms", REGISTERED_MS),
         "registration");
}

static size_t count_descriptors(void)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static json_int_t resident_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f == NULL || fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (json_int_t)pages * sysconf(_SC_PAGESIZE);
}

#ifdef __SANITIZE_ADDRESS__
size_t __sanitizer_get_current_allocated_bytes(void);
static json_int_t heap_bytes(void)
{
    return (json_int_t)__sanitizer_get_current_allocated_bytes();
}
#else
static json_int_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return (json_int_t)(info.uordblks + info.hblkhd);
}
#endif

static void print_state(struct driver *d)
{
    AUTO_JSON j = json_pack(
        "{s:I, s:I, s:I, s:I}", "requests", (json_int_t)requests_count(d->env.requests), "fds",
        (json_int_t)count_descriptors(), "heap", heap_bytes(), "rss", resident_bytes());
    print_line(d, j);
}

static void stop(struct driver *d, struct gateways *gateways)
{
    gateways_free(gateways);
    control_free(d->env.control);
    broker_link_free(d->link);
    upstream_pool_free(d->env.pool);
    request_table_free(d->env.requests);
    registry_free(d->env.registry);
    dial_guard_free(d->guard);
}

int main(int argc, char **argv)
{
    if (argc != 7 && argc != 8) {
        fprintf(stderr, "usage: gateway_driver SOCKET BASE_URL API MODEL TENANT KEY [CA_FILE]\n");
        return 2;
    }
    struct driver d = {.base_url = argv[2],
                       .api = argv[3],
                       .model = argv[4],
                       .tenant = argv[5],
                       .key = argv[6],
                       .env = {.ca_file = argc > 7 ? argv[7] : NULL}};
    struct rlimit files;
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return 1;
    pthread_mutex_init(&d.output, NULL);
    start(&d);
    struct gateways *gateways = gateways_new(&d.env);
    must(gateways_open(gateways, 1, d.tenant, listen_on(argv[1])), "gateway");
    printf("ready\n");
    fflush(stdout);
    char line[LINE_MAX_BYTES];
    while (fgets(line, sizeof line, stdin))
        if (strcmp(line, "state\n") == 0)
            print_state(&d);
    stop(&d, gateways);
    unlink(argv[1]);
    return 0;
}

#include "broker/broker.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "broker/catalog.h"
#include "broker/control.h"
#include "broker/egress.h"
#include "broker/exchange.h"
#include "broker/gateway.h"
#include "broker/jail.h"
#include "broker/key_check.h"
#include "broker/registry.h"
#include "broker/requests.h"
#include "broker/upstream_pool.h"
#include "parent/link.h"

#include <curl/curl.h>
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONFIG_TIMEOUT_MS 30000
#define DESCRIPTORS_MAX 16384

struct broker {
    struct exchange_env env;
    struct gateways *gateways;
    struct parent_link *parent; /* set before the configuration counts as known */
    struct catalog *catalog;
    struct dial_guard *guard;
    struct egress_rules egress;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool configured;
};

/* The opened box travels through these buffers: they are wiped. */
static err open_credential(void *arg, const char *session, struct str sealed, struct secret **out)
{
    struct broker *b = arg;
    if (sealed.n > PARENT_SEALED_MAX)
        return fail(E_TOO_LARGE, "a sealed credential of %zu bytes", sealed.n);
    struct parent_message *m = mem_alloc(sizeof *m);
    m->verb = PARENT_OPEN_CREDENTIAL;
    snprintf(m->credential.session, sizeof m->credential.session, "%s", session);
    m->credential.length = (uint32_t)sealed.n;
    memcpy(m->credential.data, sealed.p, sealed.n);
    err e = parent_call(b->parent, m, NULL);
    if (!e && m->credential.length > sizeof m->credential.data)
        e = fail(E_INTERNAL, "the parent sent a credential of an impossible length");
    if (!e)
        *out = secret_new((struct str){(char *)m->credential.data, m->credential.length});
    secret_wipe(m, sizeof *m);
    mem_free(m);
    return e;
}

static void configure(struct broker *b, const struct parent_config *config)
{
    if (catalog_load(config->runtime_dir, &b->catalog) != 0)
        log_fatal("the model catalogue cannot be read: %s", err_text());
    if (dial_guard_new(config->allow_private, &b->guard) != 0)
        log_fatal("%s", err_text());
    b->env.credentials.catalog = b->catalog;
    b->env.guard = b->guard;
    b->egress =
        (struct egress_rules){.guard = b->guard, .hosts = mem_strdup(config->package_hosts)};
    AUTO_LOCK(&b->lock);
    b->configured = true;
    pthread_cond_broadcast(&b->changed);
}

static void on_note(void *arg, const struct parent_message *m, int fds[FD_PASS_MAX])
{
    struct broker *b = arg;
    switch (m->verb) {
    case PARENT_NOTE_CONFIG:
        configure(b, &m->config);
        break;
    case PARENT_NOTE_LINK:
        control_attach(b->env.control, fd_take(&fds[0]));
        break;
    case PARENT_NOTE_GATEWAY:
        if (fds[0] < 0 ? gateways_bind(b->gateways, m->host.id, m->host.tenant)
                       : gateways_open(b->gateways, m->host.id, m->host.tenant, fd_take(&fds[0])))
            log_error("%s", err_text());
        break;
    case PARENT_NOTE_EGRESS:
        if (egress_serve(&b->egress, fd_take(&fds[0]), fd_take(&fds[1])))
            log_error("%s", err_text());
        break;
    case PARENT_NOTE_HOST_EXIT:
        gateways_close(b->gateways, m->host.id);
        break;
    default:
        log_warn("the parent sent a note that is not understood: %u", m->verb);
    }
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
}

/* jansson holds opened credentials for a moment, in pieces that nobody else can wipe. */
static void free_wiped(void *p)
{
    if (p)
        secret_wipe(p, malloc_usable_size(p));
    free(p);
}

/* Streams are what this process is for; the default of 1024 would be used up by 170 of them. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    limit.rlim_cur = limit.rlim_max < DESCRIPTORS_MAX ? limit.rlim_max : DESCRIPTORS_MAX;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        log_warn("the limit on open files cannot be raised: %s", strerror(errno));
}

static void prepare(struct broker *b)
{
    allow_descriptors();
    signal(SIGPIPE, SIG_IGN);
    json_set_alloc_funcs(malloc, free_wiped);
    if (sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        log_fatal("the broker's libraries cannot be initialised");
    pthread_mutex_init(&b->lock, NULL);
    cond_init(&b->changed);
    b->env.registry = registry_new();
    b->env.requests = request_table_new();
    b->env.control = control_new(b->env.registry, b->env.requests);
    control_on_check(b->env.control, key_check_begin, &b->env);
    b->env.pool = upstream_pool_new();
    b->env.credentials = (struct credential_source){.open = open_credential, .arg = b};
    b->gateways = gateways_new(&b->env);
}

static void wait_configured(struct broker *b)
{
    AUTO_LOCK(&b->lock);
    while (!b->configured)
        if (!cond_wait_ms(&b->changed, &b->lock, CONFIG_TIMEOUT_MS))
            log_fatal("the parent sent no configuration");
}

int broker_main(void)
{
    static struct broker broker;
    prepare(&broker);
    if (jail_enter() != 0)
        log_fatal("the broker cannot give up its privileges: %s", err_text());
    broker.parent = parent_link_open(PARENT_FD, on_note, &broker);
    wait_configured(&broker);
    if (parent_hello(broker.parent) != 0)
        log_fatal("the parent cannot be told that the broker is ready: %s", err_text());
    log_info("the broker is ready");
    for (;;)
        pause(); /* the link ends the process with its parent */
}

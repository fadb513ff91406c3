#include "broker/key_check.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/id.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "broker/control.h"
#include "broker/exchange.h"
#include "broker/fault.h"
#include "broker/fetch.h"
#include "broker/registry.h"
#include "broker/wire.h"

#include <stdio.h>

/* Of each of two GETs; control waits longer than both. */
#define GET_TIMEOUT_MS 6000
/* What a refusal says is at its beginning. */
#define BODY_MAX (16u << 10)

struct check {
    const struct exchange_env *env;
    char id[ID_MAX];
    struct registration *registration;
};

struct finding {
    const char *word;
    char reason[ERR_TEXT_MAX];
};

struct probe {
    const struct wire_api *api;
    struct wire_auth auth;
    const char *url;
    const struct secret *key; /* the registration's */
};

static void say(struct finding *v, const char *word, const char *reason)
{
    v->word = word;
    snprintf(v->reason, sizeof v->reason, "%s", reason);
}

/* R4a: the same rules as for a model request say where the key may go. */
static err prepare(struct check *k, struct arena *a, struct probe *out)
{
    struct registration *g = k->registration;
    const char *base_url, *api;
    struct dial_url url;
    TRY(credential_target(&k->env->credentials, g, &base_url, &api));
    out->api = wire_find(api);
    if (out->api == NULL)
        return fail(E_INVALID, "the gateway does not speak %s", api);
    struct str base = str_of(base_url);
    while (base.n && base.p[base.n - 1] == '/')
        base.n--;
    out->auth = wire_auth_of(out->api, g->custom ? "" : g->provider);
    out->url = arena_printf(a, "%.*s%s", STR_ARG(base), out->api->models);
    TRY(dial_parse(str_of(out->url), a, &url));
    TRY(credential_key(&k->env->credentials, g, &url, &out->key));
    return out->key ? 0 : fail(E_INVALID, "there is no key to try");
}

static err get_list(const struct check *k, const struct probe *p, const struct secret *key,
                    struct arena *a, int *out_status, struct buf *out_body)
{
    const struct upstream_header headers[] = {
        {"user-agent", "pi-managed/" PM_VERSION},
        {"accept", "application/json"},
        {p->api->models_header, p->api->models_value},
    };
    struct fetch_options o = {.guard = k->env->guard,
                              .policy = DIAL_MODEL,
                              .timeout_ms = GET_TIMEOUT_MS,
                              .body_max = BODY_MAX,
                              .wake_fd = -1,
                              .auth_header = p->auth.header,
                              .auth_prefix = p->auth.prefix,
                              .key = key,
                              .ca_file = k->env->ca_file,
                              .headers = headers,
                              .header_count = p->api->models_header ? 3 : 2,
                              .stay = true};
    struct fetch_result r = {0};
    err e = fetch_get(&o, str_of(p->url), a, &r);
    if (e) {
        buf_done(&r.body);
        return e;
    }
    *out_body = r.body;
    *out_status = r.hops[0].status;
    return 0;
}

static bool is_good(int status)
{
    return status >= 200 && status < 300;
}

/* The provider did not take the key, or did not say: 403 is for a key that it knows and that may
   not see the list, or for the address that asks. Its own words may repeat the key: not told. */
static void judge_failure(int status, struct str body, struct finding *v)
{
    const struct fault *fault = fault_of_answer(status, body);
    bool rejected = fault == fault_find("model_rejected_key") && status != 403;
    const char *says = status == 404   ? "There is no list of models at this address"
                       : status == 403 ? "The provider does not let this key list its models"
                                       : fault->says;
    say(v, rejected ? "invalid" : "unknown", "");
    snprintf(v->reason, sizeof v->reason, "%s (status %d)", says, status);
}

/* A list that is shown to anyone says nothing of the key: asked for again without one. */
static err judge_success(const struct check *k, const struct probe *p, struct arena *a,
                         struct finding *v)
{
    int status;
    AUTO_BUF body = {0};
    TRY(get_list(k, p, NULL, a, &status, &body));
    bool refused = status >= 300 && status < 500 && status != 408 && status != 429;
    if (refused)
        say(v, "valid", "");
    else if (is_good(status))
        say(v, "unknown", "This address answers without a key, too: it does not tell a good one");
    else
        judge_failure(status, STR(""), v);
    return 0;
}

static err judge(struct check *k, struct finding *v)
{
    int status;
    struct probe p;
    AUTO_ARENA a = arena_new();
    AUTO_BUF body = {0};
    TRY(prepare(k, a, &p));
    TRY(get_list(k, &p, p.key, a, &status, &body));
    if (is_good(status))
        return judge_success(k, &p, a, v);
    judge_failure(status, buf_str(&body), v);
    return 0;
}

static void answer(const struct exchange_env *env, const char *id, const struct finding *v)
{
    json_t *m =
        json_pack("{s:s, s:s, s:s}", "op", "credential_checked", "check", id, "verdict", v->word);
    json_set_str(m, "reason", str_of(v->reason));
    if (control_send(env->control, m) != 0)
        log_info("control does not hear of a key that was tried: %s", err_text());
}

static void *run(void *arg)
{
    struct check *k = arg;
    struct finding v;
    if (judge(k, &v) != 0)
        say(&v, "unknown", err_text());
    registration_unref(k->registration);
    answer(k->env, k->id, &v);
    mem_free(k);
    return NULL;
}

void key_check_begin(void *env, const json_t *message)
{
    const struct exchange_env *e = env;
    const char *id = json_get_c(message, "check");
    struct registration *g;
    struct finding v;
    if (id == NULL || strlen(id) >= ID_MAX)
        return;
    if (registry_describe(e->registry, message, &g) != 0) {
        say(&v, "unknown", err_text());
        answer(e, id, &v);
        return;
    }
    struct check *k = mem_alloc(sizeof *k);
    *k = (struct check){.env = e, .registration = g};
    snprintf(k->id, sizeof k->id, "%s", id);
    thread_start_detached("key-check", run, k);
}

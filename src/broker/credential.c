#include "broker/credential.h"

#include "base/arena.h"
#include "base/json.h"
#include "base/lock.h"
#include "broker/catalog.h"
#include "broker/dial.h"
#include "broker/registry.h"

#define KIND "model_provider_key"

static err refuse(const struct registration *g, const char *why)
{
    return fail_as(E_FORBIDDEN, "credential_refused",
                   "the credential for the model provider %s is not used: %s", g->provider, why);
}

err credential_target(const struct credential_source *source, const struct registration *g,
                      const char **out_base_url, const char **out_api)
{
    if (g->custom) {
        *out_base_url = g->base_url;
        *out_api = g->api;
        return 0;
    }
    const struct catalog_model *m =
        source->catalog ? catalog_find(source->catalog, g->provider, g->model) : NULL;
    if (m == NULL || m->api == NULL)
        return fail_as(E_NOT_FOUND, "model_not_found", "there is no usable model %s/%s",
                       g->provider, g->model);
    *out_base_url = m->base_url;
    *out_api = m->api;
    return 0;
}

/* R4a: a catalogue key goes to that provider's catalogue origin (the caller dials nothing else for
   a session that is not custom); a custom address gets only what is bound to exactly its origin. */
static err check_binding(const struct registration *g, const json_t *contents,
                         const struct dial_url *target)
{
    const char *provider = json_get_c(contents, "provider");
    const char *origin = json_get_c(contents, "origin");
    if (!g->custom)
        return provider && strcmp(provider, g->provider) == 0
                   ? 0
                   : refuse(g, "it belongs to another provider");
    if (origin == NULL)
        return refuse(g, "it is not bound to this address");
    AUTO_ARENA a = arena_new();
    struct dial_url bound;
    if (dial_parse(str_of(origin), a, &bound) != 0)
        return refuse(g, "the address it is bound to is not valid");
    return dial_same_origin(&bound, target) ? 0 : refuse(g, "it is bound to another address");
}

static err check_contents(const struct registration *g, const json_t *contents,
                          const struct dial_url *target)
{
    if (!str_is(json_get_str(contents, "tenant"), g->tenant))
        return refuse(g, "it belongs to another tenant");
    if (!str_is(json_get_str(contents, "kind"), KIND))
        return refuse(g, "it is not a model provider key");
    TRY(check_binding(g, contents, target));
    struct str key = json_get_str(contents, "secret");
    if (key.n == 0)
        return refuse(g, "it is empty");
    for (size_t i = 0; i < key.n; i++)
        if ((unsigned char)key.p[i] <= ' ' || (unsigned char)key.p[i] >= 0x7f)
            return refuse(g, "it holds characters that cannot be sent in a header");
    return 0;
}

/* jansson keeps a copy of the key in ordinary memory: wiped before it is freed. */
static void wipe_secret_member(json_t *contents)
{
    struct str key = json_get_str(contents, "secret");
    if (key.n)
        secret_wipe((void *)(uintptr_t)key.p, key.n);
}

static err read_box(const struct registration *g, const struct secret *opened,
                    const struct dial_url *target, struct secret **out)
{
    AUTO_JSON contents = NULL;
    if (json_read(secret_bytes(opened), &contents) != 0) {
        contents = NULL;
        return refuse(g, "what was sealed cannot be read"); /* the parser's text may quote it */
    }
    err e = check_contents(g, contents, target);
    if (!e)
        *out = secret_new(json_get_str(contents, "secret"));
    wipe_secret_member(contents);
    return e;
}

err credential_key(const struct credential_source *source, struct registration *g,
                   const struct dial_url *target, const struct secret **out)
{
    *out = NULL;
    if (g->sealed.n == 0 && g->custom)
        return 0;
    if (g->sealed.n == 0)
        return fail_as(E_FORBIDDEN, "credential_missing",
                       "there is no key for the model provider %s: add a model_provider_key "
                       "credential to a vault of the session",
                       g->provider);
    AUTO_LOCK(&g->key_lock);
    if (g->key == NULL) {
        AUTO_SECRET opened = NULL;
        if (source->open(source->arg, g->session, buf_str(&g->sealed), &opened) != 0)
            return refuse(g, "it could not be opened");
        TRY(read_box(g, opened, target, &g->key));
    }
    *out = g->key;
    return 0;
}
